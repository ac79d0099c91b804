//! A server that is far away, or cannot be reached for a while: every answer takes its time.

use std::time::Duration;

use futures_util::future::join_all;
use lock_core::driver::{Attempt, Backend, Cancelled, Kind, MutexBackend, Renewal, Renewed};
use lock_testkit::faults::Injected;
use lock_testkit::proxy::{Direction, LinkFault, Proxy, Toxic};
use lock_testkit::testing::{about_time, renewed};
use lock_testkit_servers::zookeeper::ZooKeeperServer;
use lock_zk::{ClientOptions, LeaseOptions, LossReason, Owner, ZkConfig, ZkLocks};

use crate::support::{LASTING, PROMPTLY, client, connected, eventually, link, ms, nodes, over, server, soon, watched};

const DELAY: Duration = ms(600);

/// More than a third of the lease that is to be renewed nevertheless.
const THIRD: Duration = ms(350);

/// A client with a link of its own, and that link.
async fn linked(server: &ZooKeeperServer) -> (ZkLocks, Proxy) {
    let link = link(server);
    (client(&over([&link]), LASTING).await, link)
}

fn far_away(link: &Proxy) -> Injected<'static> {
    late_by(link, DELAY)
}

fn late_by(link: &Proxy, by: Duration) -> Injected<'static> {
    link.inject(LinkFault::new(Toxic::Delay { by, jitter: Duration::ZERO }, Direction::ToClient))
}

#[tokio::test]
async fn a_lease_counts_from_when_it_was_asked_for() {
    let Some(server) = server().await else { return };
    let (locks, link) = linked(&server).await;
    let _far = far_away(&link);
    let ttl = ms(10_000);
    let mutex = locks.mutex("far").with_lease(LeaseOptions::new(ttl).with_auto_renew(false));
    let held = soon("the lock", PROMPTLY, mutex.lock()).await.unwrap();
    assert!(held.remaining() <= ttl - DELAY, "{:?} are promised, of {ttl:?}", held.remaining());
}

#[test]
fn a_renewal_is_waited_for_as_long_as_its_lease_lasts() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (locks, link) = linked(&server).await;
        let _far = late_by(&link, THIRD);
        let held = soon("the lock", PROMPTLY, locks.mutex("short").with_ttl(ms(1000)).lock()).await.unwrap();
        renewed(&held, 5).await;
        held.release().await.unwrap();
    });
}

/// Asked of the driver, as the core asks for leases that are due together.
#[tokio::test]
async fn a_lease_that_is_too_short_for_its_link_cuts_no_other_one_off() {
    let Some(server) = server().await else { return };
    let (locks, link) = linked(&server).await;
    let backend = locks.backend();
    let attempt = |name: &str, ttl| Attempt::new(name.into(), Kind::Mutex, Owner::new(), ttl).unwrap();
    let (short, extended, long) =
        (attempt("short", ms(300)), attempt("extended", ms(300)), attempt("long", ms(10_000)));
    for attempt in [&short, &extended, &long] {
        backend.try_lock(attempt).await.unwrap().expect("granted");
    }
    let far = far_away(&link);
    let batch = [Renewal::new(&short, short.ttl), Renewal::new(&extended, ms(10_000)), Renewal::new(&long, long.ttl)];
    let answers = soon("the answers", PROMPTLY, backend.renew(&batch)).await;
    assert!(answers[1..].iter().all(|answer| matches!(answer, Renewed::For(_))), "{answers:?}");
    // What is asked for counts, whatever it was taken for.
    let answers = soon("the answer", PROMPTLY, backend.renew(&batch[1..2])).await;
    assert!(matches!(answers[0], Renewed::For(_)), "{answers:?}");
    far.heal().unwrap();
    for attempt in [&short, &extended, &long] {
        backend.release(attempt).await.unwrap();
    }
}

#[tokio::test]
async fn a_renewal_that_meets_a_downgrade_does_not_take_the_lock_for_lost() {
    let Some(server) = server().await else { return };
    let link = link(&server);
    let mut options = ClientOptions::default();
    options.op_timeout = PROMPTLY;
    let config = ZkConfig::new(over([&link])).with_session_timeout(ms(30_000)).with_tick_time(ms(200));
    let locks = connected(config.with_client(options)).await;
    let lease = LeaseOptions::new(ms(10_000)).with_renew_every(ms(50));
    let write = locks.rwlock("met").with_lease(lease).write().await.unwrap();
    let seen = |containing| {
        let nothing = Toxic::Delay { by: ms(0), jitter: ms(0) };
        link.inject(LinkFault::new(nothing, Direction::ToServer).on_request(1, containing))
    };
    let silent = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient));
    let exchanged = seen("-__READ__");
    let downgrading = tokio::spawn(write.downgrade());
    exchanged.applied(PROMPTLY).await.unwrap();
    // A renewal asks for the writer's node behind the transaction that puts the reader's into its place.
    seen("-__WRIT__").applied(PROMPTLY).await.unwrap();
    silent.applied(PROMPTLY).await.unwrap();
    silent.heal().unwrap();
    let read = soon("the downgrade", PROMPTLY, downgrading).await.unwrap().unwrap();
    renewed(&read, 3).await;
    let holders = locks.rwlock("met").inspect().await.unwrap().holders;
    assert_eq!(holders.iter().map(|holder| holder.grant).collect::<Vec<_>>(), [Some(read.grant_id())]);
    read.release().await.unwrap();
}

#[test]
fn what_could_not_be_released_within_its_lease_is_released_when_a_server_is_reached_again() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let link = link(&server);
        let mut options = ClientOptions::default();
        options.op_timeout = ms(500);
        let config = ZkConfig::new(over([&link])).with_session_timeout(ms(30_000)).with_tick_time(ms(200));
        let locks = connected(config.with_client(options)).await;
        let held = locks.mutex("left").with_ttl(ms(1500)).lock().await.unwrap();
        let cut = link.inject(LinkFault::new(Toxic::Blackhole, Direction::Both));
        drop(held);
        // For longer than its lease and a request, and not for as long as its session.
        tokio::time::sleep(ms(4000)).await;
        cut.heal().unwrap();
        let next = client(server.url(), LASTING).await.mutex("left");
        soon("the next", PROMPTLY, next.lock()).await.unwrap().release().await.unwrap();
    });
}

#[tokio::test]
async fn a_split_whose_answer_is_lost_is_renewed_on() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let a = client(&over([&link]), LASTING).await;
    // How the transaction begins that releases them: with a deletion, or with a node for fewer in the place of one.
    for (limit, permits, begins) in [(5, 3, "\0\0\0\u{e}\0\0\0\u{2}"), (5_000, 4_000, "\0\0\0\u{e}\0\0\0\u{f}")] {
        let name = format!("split-{limit}");
        let mut held = a.semaphore(&*name, limit).with_lease(watched()).acquire_many(permits).await.unwrap();
        let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, begins));
        held.release_some(1).await.unwrap();
        lost.heal().unwrap();
        renewed(&held, 3).await;
        assert_eq!(a.semaphore(&*name, limit).available().await.unwrap(), limit - (permits - 1));
        held.release().await.unwrap();
        let left = truth.children(&format!("/lock/semaphore/{name}/leases")).await.unwrap();
        assert!(left.unwrap_or_default().is_empty());
    }
}

#[tokio::test]
async fn permits_whose_lease_ends_while_some_are_released_are_released_as_well() {
    let Some(server) = server().await else { return };
    let (locks, link) = linked(&server).await;
    let truth = server.client().await.unwrap();
    // One node for all of them, and another one in its place for fewer.
    let lease = LeaseOptions::new(ms(3000)).with_auto_renew(false);
    let mut held = locks.semaphore("ends", 5_000).with_lease(lease).acquire_many(4_000).await.unwrap();
    let two_answers_and_a_half = DELAY * 5 / 2;
    eventually("the lease comes to its end", PROMPTLY, async || held.remaining() < two_answers_and_a_half).await;
    let far = link.inject(LinkFault::new(Toxic::Delay { by: DELAY, jitter: Duration::ZERO }, Direction::ToServer));
    // It looks for what it has, and asks for the exchange, whose answer comes behind the end of the lease: before the answer to the
    // deletion that the end has asked for.
    let _ = soon("the split", PROMPTLY, held.release_some(1)).await;
    assert!(!held.is_held());
    far.heal().unwrap();
    eventually("nothing is left", PROMPTLY, async || {
        truth.children("/lock/semaphore/ends/leases").await.unwrap().unwrap_or_default().is_empty()
    })
    .await;
}

/// As many as one renewal is for.
const TOGETHER: usize = 128;

/// Asked of the driver, as the core asks for leases that are due together.
#[test]
fn locks_that_are_lost_together_are_told_so_together() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let ((locks, link), truth) = (linked(&server).await, server.client().await.unwrap());
        let (backend, ttl) = (locks.backend(), ms(10_000));
        let names: Vec<_> = (0..TOGETHER).map(|number| format!("together-{number}")).collect();
        let attempt = |name: &String| Attempt::new(name.as_str().into(), Kind::Mutex, Owner::new(), ttl).unwrap();
        let attempts: Vec<_> = names.iter().map(attempt).collect();
        for granted in join_all(attempts.iter().map(|attempt| backend.try_lock(attempt))).await {
            granted.unwrap().expect("granted");
        }
        for name in &names {
            assert!(truth.delete(&nodes(&truth, name).await[0]).await.unwrap());
        }
        let _far = late_by(&link, ms(20));
        let batch: Vec<_> = attempts.iter().map(|attempt| Renewal::new(attempt, ttl)).collect();
        let answers = soon("the answers", ms(1000), backend.renew(&batch)).await;
        let lost = answers.iter().filter(|answer| matches!(answer, Renewed::Lost(LossReason::Taken)));
        assert_eq!(lost.count(), TOGETHER, "{answers:?}");
    });
}

/// Asked of the driver, as the core asks.
#[tokio::test]
async fn a_loss_of_which_no_reason_comes_is_told_as_one() {
    let Some(server) = server().await else { return };
    let ((locks, link), truth) = (linked(&server).await, server.client().await.unwrap());
    let (backend, ttl) = (locks.backend(), ms(1000));
    let attempt = Attempt::new("unexplained".into(), Kind::Mutex, Owner::new(), ttl).unwrap();
    backend.try_lock(&attempt).await.unwrap().expect("granted");
    assert!(truth.delete(&nodes(&truth, "unexplained").await[0]).await.unwrap());
    let silent = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient).on_request(1, "/lock/forced/"));
    let answers = soon("the answer", PROMPTLY, backend.renew(&[Renewal::new(&attempt, ttl)])).await;
    assert!(matches!(answers[0], Renewed::Lost(LossReason::Taken)), "{answers:?}");
    silent.heal().unwrap();
    // It is settled once the core has cancelled it: another node may be left.
    assert!(!backend.is_settled(&attempt));
    let cancelled = soon("the cancellation", PROMPTLY, backend.cancel(&attempt)).await.unwrap();
    assert!(matches!(cancelled, Cancelled::Settled), "{cancelled:?}");
    assert!(backend.is_settled(&attempt) && !backend.may_remain(&attempt));
}
