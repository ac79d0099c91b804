//! Records beside mutexes: nodes that outlive sessions, until their time is over.

use std::time::Duration;

use lock_core::driver::{Attempt, Backend, Kind, MutexBackend, RecordBackend, RecordWrite};
use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit_servers::zookeeper::{NodeKind, ZooKeeperClient};
use lock_zk::{Owner, ZkLocks};

use crate::support::{LASTING, PROMPTLY, client, eventually, link, ms, over, server, soon};

/// The turn to sweep.
const TURN: &str = "/lock/record/.sweep";

/// A record of this name that is kept for so long: through the driver, since the shortest time that a user can ask for is a minute.
async fn write(locks: &ZkLocks, name: &str, retention: Duration) {
    let attempt = Attempt::new(name.into(), Kind::Mutex, Owner::new(), LASTING).unwrap();
    let grant = locks.backend().try_lock(&attempt).await.unwrap().unwrap();
    let written = locks.backend().write_record(&attempt, grant.token.unwrap(), Some(b"data"), retention).await.unwrap();
    assert!(matches!(written, RecordWrite::Done(_)), "{written:?}");
    locks.backend().release(&attempt).await.unwrap();
}

/// The records, and whatever else is beside them.
async fn records(truth: &ZooKeeperClient) -> Vec<String> {
    let mut names = truth.children("/lock/record").await.unwrap().unwrap_or_default();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn records_whose_time_is_over_are_deleted_by_whoever_makes_another_one() {
    const MANY: usize = 300;
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let (second, day) = (Duration::from_secs(1), Duration::from_secs(24 * 60 * 60));
    // The first one that is made looks for those that have ended, and this client not again for an hour.
    write(&locks, "kept", day).await;
    for number in 0..MANY {
        write(&locks, &format!("short-{number}"), second).await;
    }
    // Written again with a shorter time, it is kept as long as before.
    write(&locks, "kept", second).await;
    // Something else is nobody's to delete.
    truth.create("/lock/record/foreign", b"somebody else's", NodeKind::Persistent).await.unwrap();
    assert_eq!(records(&truth).await.len(), MANY + 2);
    // The server's clock is this machine's.
    tokio::time::sleep(second * 2).await;
    let next = client(server.url(), LASTING).await;
    write(&next, "new", day).await;
    eventually("they are gone", PROMPTLY, async || records(&truth).await == ["foreign", "kept", "new"]).await;
}

/// The version of a record that is made anew is that of the one before.
#[tokio::test]
async fn a_record_that_was_made_anew_is_not_deleted_by_whoever_had_read_the_one_before() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let [first, slow, other] = [
        client(server.url(), LASTING).await,
        client(&over([&link]), LASTING).await,
        client(server.url(), LASTING).await,
    ];
    let (second, day) = (Duration::from_secs(1), Duration::from_secs(24 * 60 * 60));
    write(&first, "kept", day).await;
    eventually("its own sweep is over", PROMPTLY, async || records(&truth).await == ["kept"]).await;
    write(&first, "again", second).await;
    // The server's clock is this machine's.
    tokio::time::sleep(second * 2).await;
    // It has read what has ended, and does not know it yet.
    let held_up = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient).on_request(1, "/lock/record/again"));
    let writing = tokio::spawn(async move {
        write(&slow, "by-slow", day).await;
        slow
    });
    held_up.applied(PROMPTLY).await.unwrap();
    write(&other, "by-other", day).await;
    // If it sweeps as well, it does so at once.
    let is_gone = async || while truth.exists("/lock/record/again").await.unwrap().is_some() {};
    let _ = tokio::time::timeout(second, is_gone()).await;
    write(&other, "again", day).await;
    let nothing = Toxic::Delay { by: ms(0), jitter: ms(0) };
    let deletes = link.inject(LinkFault::new(nothing, Direction::ToServer).on_request(1, "/lock/record/again"));
    held_up.heal().unwrap();
    deletes.applied(PROMPTLY).await.unwrap();
    let slow = soon("the record is written", PROMPTLY, writing).await.unwrap();
    // Answered behind the deletion.
    slow.mutex("behind").lock().await.unwrap().release().await.unwrap();
    assert!(truth.exists("/lock/record/again").await.unwrap().is_some(), "a fresh record was deleted");
    let all = ["again", "by-other", "by-slow", "kept"];
    eventually("nothing of the sweeps is left", PROMPTLY, async || records(&truth).await == all).await;
}

/// Writes a record whose time is over at once, once the sweep of its writer is over, so that another client has something to sweep.
async fn leave_an_ended_one(url: &str, truth: &ZooKeeperClient) -> ZkLocks {
    let (first, day) = (client(url, LASTING).await, Duration::from_secs(24 * 60 * 60));
    write(&first, "kept", day).await;
    eventually("its own sweep is over", PROMPTLY, async || records(truth).await == ["kept"]).await;
    let second = Duration::from_secs(1);
    write(&first, "ended", second).await;
    // The server's clock is this machine's.
    tokio::time::sleep(second * 2).await;
    first
}

#[tokio::test]
async fn a_turn_to_sweep_that_is_given_back_once_more_after_a_lost_answer_is_left_to_whoever_took_it_meanwhile() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let _first = leave_an_ended_one(server.url(), &truth).await;
    let sweeper = client(&over([&link]), LASTING).await;
    // The request that deletes it: its type, and the length of the path.
    let deletion = format!("\0\0\0\u{2}\0\0\0\u{13}{TURN}");
    let lost = link.inject(LinkFault::new(Toxic::Blackhole, Direction::ToClient).on_request(1, deletion));
    let writing = tokio::spawn(async move {
        write(&sweeper, "new", Duration::from_secs(24 * 60 * 60)).await;
        sweeper
    });
    lost.applied(PROMPTLY).await.unwrap();
    truth.create(TURN, b"", NodeKind::Ephemeral).await.unwrap().expect("it was given back");
    let nothing = Toxic::Delay { by: ms(0), jitter: ms(0) };
    let again = link.inject(LinkFault::new(nothing, Direction::ToServer).on_request(1, TURN));
    lost.heal().unwrap();
    again.applied(PROMPTLY).await.unwrap();
    let sweeper = soon("the record is written", PROMPTLY, writing).await.unwrap();
    // Answered behind what was asked for once more.
    sweeper.mutex("behind").lock().await.unwrap().release().await.unwrap();
    assert!(truth.exists(TURN).await.unwrap().is_some(), "another one's turn was ended");
}

/// The one that asks for the turn, and the one that asks once more.
#[tokio::test]
async fn a_turn_to_sweep_whose_answers_are_lost_is_taken_and_given_back() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    for direction in [Direction::ToServer, Direction::ToClient] {
        let first = leave_an_ended_one(server.url(), &truth).await;
        let sweeper = client(&over([&link]), LASTING).await;
        let lost = [1, 2].map(|nth| link.inject(LinkFault::new(Toxic::Swallow, direction).on_request(nth, TURN)));
        write(&sweeper, "new", Duration::from_secs(24 * 60 * 60)).await;
        eventually("it has swept", PROMPTLY, async || records(&truth).await == ["kept", "new"]).await;
        for lost in lost {
            lost.heal().unwrap();
        }
        for name in ["kept", "new"] {
            truth.delete(&format!("/lock/record/{name}")).await.unwrap();
        }
        drop((first, sweeper));
    }
}
