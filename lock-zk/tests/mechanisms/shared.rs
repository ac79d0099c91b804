//! Paths shared with Curator's semaphores, played here request by request: it makes a permit first and counts then, and
//! whoever stands first in the queue gives way to nobody.

use std::time::{Duration, Instant};

use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit_servers::zookeeper::{NodeKind, ZooKeeperClient, ZooKeeperServer};
use lock_zk::{Dialect, ErrorKind, LockName, Owner, Semaphore, ZkConfig, ZkLocks};

use crate::support::{LASTING, PROMPTLY, client, connected, eventually, fails, link, ms, over, server, soon};

const UUID: &str = "_c_0f8fad5b-d9cb-469f-a165-70867728950e";

fn api(locks: &ZkLocks, limit: u32) -> Semaphore {
    locks.semaphore(LockName::from_key("/api").unwrap(), limit)
}

async fn names(truth: &ZooKeeperClient, directory: &str) -> Vec<String> {
    let mut names = truth.children(directory).await.unwrap().unwrap_or_default();
    names.sort_by_key(|name| name[name.len() - 10..].to_owned());
    names
}

async fn makes(foreign: &ZooKeeperClient, directory: &str, kind: &str) -> String {
    let stem = format!("{directory}/{UUID}-{kind}-");
    foreign.create(&stem, b"10.0.0.1", NodeKind::EphemeralSequential).await.unwrap().unwrap()
}

/// Curator's client was first in the queue, stood still beyond its session, and goes on in the next one: it makes its permit
/// without a place in the queue, while ours has counted and not yet taken.
#[tokio::test]
async fn a_late_permit_of_curators_lets_nobody_of_ours_in_beside_it() {
    let Some(server) = server().await else { return };
    let (link, curator) = (link(&server), server.client().await.unwrap());
    let locks = client(&over([&link]), LASTING).await;
    let api = api(&locks, 1);
    api.acquire().await.unwrap().release().await.unwrap();
    for round in 0..50 {
        let taking = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, "-lease-"));
        let (waiter, waits) = (api.clone(), round % 2 == 0);
        let ours =
            tokio::spawn(
                async move { if waits { waiter.acquire().await.map(Some) } else { waiter.try_acquire().await } },
            );
        taking.applied(PROMPTLY).await.unwrap();
        let theirs = makes(&curator, "/api/leases", "lease").await;
        let counted = names(&curator, "/api/leases").await.len();
        assert_eq!(counted, 1, "Curator's client waits, and nothing is shown");
        taking.heal().unwrap();
        if waits {
            eventually("ours is in the queue", PROMPTLY, async || {
                assert!(!ours.is_finished(), "granted beside Curator's client in round {round}");
                let (places, permits) = (names(&curator, "/api/locks").await, names(&curator, "/api/leases").await);
                places.len() == 1 && permits.len() == 1 && theirs.ends_with(&permits[0])
            })
            .await;
            curator.delete(&theirs).await.unwrap();
            let held = soon("granted after it", PROMPTLY, ours).await.unwrap().unwrap().unwrap();
            held.release().await.unwrap();
        } else {
            let tried = soon("the try ends", PROMPTLY, ours).await.unwrap().unwrap();
            assert!(tried.is_none(), "granted beside Curator's client in round {round}");
            assert_eq!(names(&curator, "/api/leases").await.len(), 1, "a permit of ours is left");
            curator.delete(&theirs).await.unwrap();
        }
        assert!(names(&curator, "/api/locks").await.is_empty());
    }
}

/// A permit that Curator's client makes behind ours counts ours, and waits: ours is held.
#[tokio::test]
async fn a_permit_that_curators_makes_behind_ours_costs_us_nothing() {
    let Some(server) = server().await else { return };
    let (link, curator) = (link(&server), server.client().await.unwrap());
    let locks = client(&over([&link]), LASTING).await;
    let api = api(&locks, 1);
    api.acquire().await.unwrap().release().await.unwrap();
    let taken = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient).on_request(1, "-lease-"));
    let waiter = api.clone();
    let ours = tokio::spawn(async move { waiter.acquire().await });
    taken.applied(PROMPTLY).await.unwrap();
    let theirs = makes(&curator, "/api/leases", "lease").await;
    taken.heal().unwrap();
    let held = soon("granted", PROMPTLY, ours).await.unwrap().unwrap();
    assert_eq!(names(&curator, "/api/leases").await.len(), 2, "Curator's client waits for ours");
    held.release().await.unwrap();
    curator.delete(&theirs).await.unwrap();
}

/// One of Curator's clients at a semaphore of one permit: takes turns until it is told to stop; how many turns it had.
async fn curators(server: &ZooKeeperServer, hold: Duration, until: Instant) -> usize {
    let client = server.client().await.unwrap();
    let mut turns = 0;
    while Instant::now() < until {
        let place = makes(&client, "/api/locks", "lock").await;
        while !names(&client, "/api/locks").await.first().is_some_and(|first| place.ends_with(first.as_str())) {
            tokio::time::sleep(ms(3)).await;
        }
        let permit = makes(&client, "/api/leases", "lease").await;
        while names(&client, "/api/leases").await.len() > 1 {
            tokio::time::sleep(ms(3)).await;
        }
        client.delete(&place).await.unwrap();
        turns += 1;
        tokio::time::sleep(hold).await;
        client.delete(&permit).await.unwrap();
    }
    turns
}

/// Holds that are longer than any pause of ours: who gives its place up gets none.
#[tokio::test]
async fn curators_clients_do_not_starve_ours() {
    const ROUNDS: usize = 5;
    let hold = ms(700);
    let Some(server) = server().await else { return };
    let locks = client(server.url(), LASTING).await;
    let api = api(&locks, 1);
    api.acquire().await.unwrap().release().await.unwrap();
    let until = Instant::now() + hold * 4 * u32::try_from(ROUNDS).unwrap();
    let ours = async {
        let mut turns = 0;
        while Instant::now() < until {
            let asked = Instant::now();
            let held = api.acquire().await.unwrap();
            assert!(asked.elapsed() <= hold * 4 * 2 + ms(1000), "a turn after {:?}", asked.elapsed());
            turns += 1;
            tokio::time::sleep(hold).await;
            held.release().await.unwrap();
        }
        turns
    };
    let theirs = || curators(&server, hold, until);
    let (ours, a, b, c) = tokio::join!(ours, theirs(), theirs(), theirs());
    let share = (ours + a + b + c) / 4;
    assert!(ours * 2 >= share, "{ours} turns of ours, {a}, {b} and {c} of theirs");
}

#[tokio::test]
async fn two_spellings_of_a_path_are_one_lock() {
    let Some(server) = server().await else { return };
    let locks = client(server.url(), LASTING).await;
    let me = Owner::new();
    let at = |path: &str| locks.reentrant(LockName::from_key(path).unwrap());
    let outer = at("/jobs/x").lock(&me).await.unwrap();
    let inner = soon("entered again", PROMPTLY, at("jobs/x").lock(&me)).await.unwrap();
    assert_eq!(inner.depth(), 2);
    inner.release().await.unwrap();
    outer.release().await.unwrap();
}

/// One client that is configured wrongly is told, and those that are not notice nothing.
#[tokio::test]
async fn a_client_of_the_wrong_dialect_does_not_disturb_the_others() {
    let Some(server) = server().await else { return };
    let config = || ZkConfig::new(server.url()).with_session_timeout(LASTING).with_tick_time(ms(200));
    let wrong = connected(config().with_dialect_at("/jobs/x", Dialect::Kazoo)).await;
    let right = [connected(config()).await, connected(config()).await]
        .map(|locks| locks.mutex(LockName::from_key("/jobs/x").unwrap()));
    let held = right[0].lock().await.unwrap();
    let next = right[1].clone();
    let waiting = tokio::spawn(async move { next.lock().await });
    let truth = server.client().await.unwrap();
    eventually("in the queue", PROMPTLY, async || names(&truth, "/jobs/x").await.len() == 2).await;
    for _ in 0..20 {
        fails(wrong.mutex(LockName::from_key("/jobs/x").unwrap()).try_lock().await, ErrorKind::Protocol);
        fails(wrong.mutex(LockName::from_key("/jobs/x").unwrap()).lock().await, ErrorKind::Protocol);
    }
    assert_eq!(names(&truth, "/jobs/x").await.len(), 2);
    // Nothing of it was ever there: the next number is the next one.
    held.release().await.unwrap();
    let held = soon("granted", PROMPTLY, waiting).await.unwrap().unwrap();
    let third = right[0].clone();
    let third = tokio::spawn(async move { third.lock().await });
    eventually("in the queue", PROMPTLY, async || names(&truth, "/jobs/x").await.len() == 2).await;
    assert!(names(&truth, "/jobs/x").await[1].ends_with("0000000002"), "the wrong client made nodes");
    held.release().await.unwrap();
    soon("granted", PROMPTLY, third).await.unwrap().unwrap().release().await.unwrap();
}

/// A semaphore has directories below its path, which no other lock knows what to do with.
#[tokio::test]
async fn a_semaphore_at_the_path_of_a_mutex_is_told_and_disturbs_nobody() {
    let Some(server) = server().await else { return };
    let locks = client(server.url(), LASTING).await;
    let path = || LockName::from_key("/jobs/x").unwrap();
    let held = locks.mutex(path()).lock().await.unwrap();
    for _ in 0..3 {
        fails(locks.semaphore(path(), 2).try_acquire().await, ErrorKind::Protocol);
        fails(locks.semaphore(path(), 2).acquire().await, ErrorKind::Protocol);
    }
    let truth = server.client().await.unwrap();
    assert_eq!(names(&truth, "/jobs/x").await.len(), 1);
    assert!(locks.mutex(path()).try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
    // A lock below the path of a semaphore is none of its own.
    let below = locks.mutex(LockName::from_key("/jobs/x/order-1234567890").unwrap()).lock().await.unwrap();
    locks.semaphore(path(), 2).acquire().await.unwrap().release().await.unwrap();
    below.release().await.unwrap();
}
