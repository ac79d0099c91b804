//! Claims whose answers, or which themselves, are lost on their way.

use std::time::Duration;

use lock_memcached::{ClientOptions, ErrorKind, LeaseOptions, MemcachedConfig, MemcachedLocks, RestartPolicy};
use lock_testkit::ms;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{client, end_epoch_at, epoch_ends_at, eventually, far, open, server};

/// So long that no wait outlasts an item that nobody knows of.
const TTL: Duration = Duration::from_secs(60);
/// Text in every claim and every renewal of the lock.
const LOCK: &str = "ma lock:mutex:held ";
/// Text in every renewal: the TTL with its margin.
const RENEWAL: &str = " T65";
/// Text in every claim.
const CLAIM: &str = "ma lock:mutex:held c ";

/// The value of the lock's item.
async fn number(server: &MemcachedServer) -> Option<String> {
    let value = server.client().get("lock:mutex:held").await.unwrap();
    value.map(|value| String::from_utf8_lossy(&value).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_carried_out_without_an_answer_is_found_out_by_the_next_one() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Off).await;
    let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, LOCK));
    let guard = locks.mutex("held").with_ttl(TTL).try_lock_for(ms(15_000)).await.unwrap();
    let guard = guard.expect("its own item kept it out");
    lost.heal().unwrap();
    let own = number(&server).await;
    guard.extend(TTL).await.unwrap();
    assert_eq!(number(&server).await, own, "the renewal was of another item");
    guard.release().await.unwrap();
    assert_eq!(number(&server).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_the_renewal_of_what_was_found_costs_one_more_try() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Off).await;
    let first = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, LOCK));
    let second = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, RENEWAL));
    let guard = locks.mutex("held").with_ttl(TTL).try_lock_for(ms(15_000)).await.unwrap();
    let guard = guard.expect("its own item kept it out");
    first.heal().unwrap();
    second.heal().unwrap();
    guard.release().await.unwrap();
    assert_eq!(number(&server).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_s_item_is_not_taken_for_what_an_unanswered_claim_took() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Off).await;
    let other = client(&server, RestartPolicy::Off).await.mutex("held").with_ttl(TTL).lock().await.unwrap();
    let theirs = number(&server).await;
    let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, LOCK));
    let waiting = tokio::spawn(async move { locks.mutex("held").with_ttl(TTL).lock().await });
    lost.applied(ms(15_000)).await.unwrap();
    // It claims once more, is refused, and asks from then on.
    let before = link.requests();
    eventually("it asks on", async || link.requests() > before + 10).await;
    assert!(!waiting.is_finished() && other.is_held(), "granted beside another holder");
    assert_eq!(number(&server).await, theirs);
    lost.heal().unwrap();
    other.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_whose_hand_over_was_not_answered_is_no_loss() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Off).await;
    let mutex = locks.mutex("held").with_ttl(TTL);
    let guard = mutex.lock().await.unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await });
    // It has claimed once, was refused, and asks from then on.
    let before = link.requests();
    eventually("it asks", async || link.requests() > before + 10).await;
    let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, LOCK));
    guard.release().await.unwrap();
    lost.applied(ms(15_000)).await.unwrap();
    let next = tokio::time::timeout(TTL / 2, waiting).await.expect("its own item kept it out");
    next.unwrap().unwrap().release().await.unwrap();
    assert_eq!(number(&server).await, None);
}

/// The lock is lost before its release: the hand-over is refused, and nobody hears so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_whose_hand_over_was_not_answered_is_no_success_either_if_the_lock_was_lost_before() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Off).await;
    for is_another_s in [true, false] {
        let mut told = None;
        // The first release that meets the waiter in a pause, and not in a look, hands the lock over.
        for number in 0..100 {
            let (name, key) = (format!("{number}{is_another_s}"), format!("lock:mutex:{number}{is_another_s}"));
            let mutex = locks.mutex(name).with_ttl(TTL);
            let guard = mutex.lock().await.unwrap();
            let waiting = tokio::spawn(async move { mutex.lock().await });
            eventually("it waits", async || format!("{:?}", locks.backend()).contains("Offer {")).await;
            let change = format!("ma {key} ");
            let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, &change));
            if is_another_s {
                let (_, unchanged) = server.client().gets(&key).await.unwrap().unwrap();
                assert!(server.client().cas(&key, "another", 60, unchanged).await.unwrap());
            } else {
                server.client().delete(&key).await.unwrap();
            }
            let error = guard.release().await.expect_err("released, though it was lost before");
            waiting.abort();
            drop(lost);
            if error.kind() != ErrorKind::NotHeld {
                told = Some(error);
                break;
            }
        }
        let error = told.expect("no lock was handed over");
        assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Indeterminate, false), "{error}");
    }
}

/// The first claim takes the lock, without an answer. The second one finds it, and reads the epoch before that is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_earlier_claim_took_is_granted_by_an_epoch_that_was_read_after_it_was_found() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    drop(open(&server).await);
    let (link, locks) = far(&server, RestartPolicy::default()).await;
    let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, LOCK));
    let found = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, "mg lock:mutex:held v"));
    let waiting = tokio::spawn(async move { locks.mutex("held").lock().await });
    lost.applied(ms(15_000)).await.unwrap();
    found.applied(ms(15_000)).await.unwrap();
    assert!(server.client().delete("lock:epoch").await.unwrap());
    found.heal().unwrap();
    let guard = tokio::time::timeout(TTL / 2, waiting).await.expect("nobody puts the epoch back").unwrap().unwrap();
    assert!(server.client().get("lock:epoch").await.unwrap().is_some(), "granted without an epoch");
    guard.release().await.unwrap();
}

/// The first claim takes the lock, without an answer. The second one finds it while the server's clock is behind, as after a pause: the
/// renewal that gives it its full time counts from the old clock, and ends with the next tick. The clock is right again when the epoch is
/// read once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_earlier_claim_took_is_no_grant_if_the_server_s_clock_stood_when_it_was_found() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    drop(open(&server).await);
    let (link, locks) = far(&server, RestartPolicy::default()).await;
    let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, LOCK));
    let second = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(2, LOCK));
    let mut waiting = tokio::spawn(async move { locks.mutex("held").lock().await });
    lost.applied(ms(15_000)).await.unwrap();
    second.applied(ms(15_000)).await.unwrap();
    let ends_at = epoch_ends_at(&server).await;
    end_epoch_at(&server, ends_at + 10).await;
    let found = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, "mg lock:mutex:held v"));
    second.heal().unwrap();
    found.applied(ms(15_000)).await.unwrap();
    end_epoch_at(&server, ends_at).await;
    let anew = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, CLAIM));
    found.heal().unwrap();
    tokio::select! {
        biased;
        granted = &mut waiting => panic!("it holds what a clock that stood has renewed: {:?}", granted.unwrap()),
        applied = anew.applied(ms(15_000)) => drop(applied.unwrap()),
    }
    anew.heal().unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// A claim that goes alone, while the server's clock is behind, as after a pause: the look in front of it shows that, and the one behind
/// it does no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_claim_that_a_clock_that_stood_has_stored_is_no_grant_although_the_clock_is_right_behind_it() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    drop(open(&server).await);
    let (link, locks) = far(&server, RestartPolicy::Quarantine).await;
    let ends_at = epoch_ends_at(&server).await;
    end_epoch_at(&server, ends_at + 10).await;
    let before = gets(&server).await;
    let claim = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, LOCK));
    let mut waiting = tokio::spawn(async move { locks.mutex("held").lock().await });
    claim.applied(ms(15_000)).await.unwrap();
    eventually("the look in front is answered", async || gets(&server).await > before).await;
    end_epoch_at(&server, ends_at).await;
    let anew = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, CLAIM));
    claim.heal().unwrap();
    tokio::select! {
        biased;
        granted = &mut waiting => panic!("it holds what a clock that stood has stored: {:?}", granted.unwrap()),
        applied = anew.applied(ms(15_000)) => drop(applied.unwrap()),
    }
    anew.heal().unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// As with a claim: an item that a clock that stood has renewed ends early.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_a_clock_that_stood_has_stored_does_not_count_although_the_clock_is_right_behind_it() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let lease = LeaseOptions::new(ms(10_000)).with_auto_renew(false);
    let config = MemcachedConfig::new(format!("memcached://{}", link.address())).with_longest_lease(lease.ttl);
    let config = config.with_client(ClientOptions::default().with_lease(lease).with_patience(ms(15_000)));
    // Granted once the quarantine of a new server is over.
    let guard = MemcachedLocks::connect_with(config).await.unwrap().mutex("held").lock().await.unwrap();
    let ends_at = epoch_ends_at(&server).await;
    end_epoch_at(&server, ends_at + 10).await;
    let before = gets(&server).await;
    let renewal = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, LOCK));
    let extending = tokio::spawn(async move { guard.extend(lease.ttl).await });
    renewal.applied(ms(15_000)).await.unwrap();
    eventually("the look in front is answered", async || gets(&server).await > before).await;
    end_epoch_at(&server, ends_at).await;
    renewal.heal().unwrap();
    let error = extending.await.unwrap().expect_err("it counts what a clock that stood has stored");
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
}

/// The number of reads that the server has carried out.
async fn gets(server: &MemcachedServer) -> u64 {
    server.client().stats("").await.unwrap()["cmd_get"].parse().unwrap()
}
