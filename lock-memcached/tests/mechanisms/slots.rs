//! Locks of several keys, where answers are lost on their way.

use std::error::Error;
use std::time::Duration;

use lock_memcached::{ErrorKind, MemcachedLocks, RestartPolicy};
use lock_testkit::ms;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{client, config, far, server};

/// So long that no wait outlasts an item that nobody knows of.
const TTL: Duration = Duration::from_secs(60);
/// The number of slots: so many that the first one which is tried is seldom the only free one.
const MANY: u32 = 200;

/// The connection ends instead of the answer to the first such request.
fn lost(request: &str) -> LinkFault {
    LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, request)
}

/// The number of keys that are there and begin so.
async fn items(server: &MemcachedServer, keys: &str) -> usize {
    let mut there = 0;
    for number in 0..MANY {
        there += usize::from(server.client().get(&format!("{keys}{number}")).await.unwrap().is_some());
    }
    there
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_that_were_taken_without_an_answer_do_not_keep_their_own_waiter_out() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Off).await;
    let lost = link.inject(lost("ma lock:semaphore:"));
    let permits = locks.semaphore("a", 3).with_ttl(TTL).try_acquire_many_for(3, ms(15_000)).await.unwrap();
    let permits = permits.expect("its own permits kept it out");
    lost.heal().unwrap();
    permits.release().await.unwrap();
    assert_eq!(items(&server, "lock:semaphore:a:").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_permit_that_was_taken_without_an_answer_does_not_keep_its_own_waiter_out() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Off).await;
    let other = client(&server, RestartPolicy::Off).await.semaphore("a", MANY).with_ttl(TTL);
    let others = other.try_acquire_many(MANY - 1).await.unwrap().unwrap();
    let lost = link.inject(lost(&format!("ma lock:semaphore:a:{} ", MANY - 1)));
    let permit = locks.semaphore("a", MANY).with_ttl(TTL).try_acquire_for(ms(15_000)).await.unwrap();
    let permit = permit.expect("its own permit kept it out");
    lost.heal().unwrap();
    permit.release().await.unwrap();
    others.release().await.unwrap();
    assert_eq!(items(&server, "lock:semaphore:a:").await, 0);
}

/// Others read in all slots but one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_s_slot_that_was_taken_without_an_answer_does_not_keep_its_own_waiter_out() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let mut config = config(&server).with_restart_policy(RestartPolicy::Off).with_readers(MANY);
    config.url = format!("memcached://{}", link.address());
    let locks = MemcachedLocks::connect_with(config).await.unwrap();
    for number in 1..MANY {
        assert!(server.client().add(&format!("lock:rwlock:a:{number}"), "1234567890123456789", 0).await.unwrap());
    }
    let lost = link.inject(lost("ma lock:rwlock:a:0 "));
    let reader = locks.rwlock("a").with_ttl(TTL).try_read_for(ms(15_000)).await.unwrap();
    let reader = reader.expect("its own slot kept it out");
    lost.heal().unwrap();
    reader.release().await.unwrap();
    assert!(server.client().get("lock:rwlock:a:0").await.unwrap().is_none());
}

/// Another one has a permit under another limit, so two that were just taken are released again; the answer to that is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_of_permits_that_is_not_answered_is_told_as_that() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Off).await;
    let other = client(&server, RestartPolicy::Off).await.semaphore("a", 2).with_ttl(TTL);
    let _others = other.acquire().await.unwrap();
    let lost = link.inject(lost("md lock:semaphore:"));
    let error = locks.semaphore("a", 3).with_ttl(TTL).try_acquire_many(2).await.map(drop).unwrap_err();
    lost.heal().unwrap();
    assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Indeterminate, false), "{error}");
    assert!(causes(&error).contains("no answer came"), "{}", causes(&error));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_permits_outlasts_a_release_that_was_not_answered() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Off).await;
    let other = client(&server, RestartPolicy::Off).await.semaphore("a", 2).with_ttl(TTL);
    let _others = other.acquire().await.unwrap();
    let lost = link.inject(lost("md lock:semaphore:"));
    let error = locks.semaphore("a", 3).with_ttl(TTL).acquire_many(2).await.map(drop).unwrap_err();
    lost.heal().unwrap();
    // It asked once more, and was told so.
    assert!(causes(&error).contains("asked for with another limit"), "{}", causes(&error));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_another_limit_is_told_so_although_it_wants_several_permits() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let five = client(&server, RestartPolicy::Off).await.semaphore("a", 5).with_ttl(TTL);
    let three = client(&server, RestartPolicy::Off).await.semaphore("a", 3).with_ttl(TTL);
    let all = five.try_acquire_many(5).await.unwrap().unwrap();
    for told in [three.try_acquire_many(2).await, three.try_acquire_many_for(2, ms(500)).await] {
        let error = told.map(drop).expect_err("refused as if the limits were the same");
        assert_eq!(error.kind(), ErrorKind::LimitMismatch, "{error}");
    }
    all.release().await.unwrap();
    three.acquire_many(2).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_another_number_of_readers_is_told_so_although_somebody_reads() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let reader = client(&server, RestartPolicy::Off).await.rwlock("a").with_ttl(TTL).read().await.unwrap();
    let config = config(&server).with_restart_policy(RestartPolicy::Off).with_readers(8);
    let other = MemcachedLocks::connect_with(config).await.unwrap();
    // The reader may have a slot that the other one does not know.
    server.client().add("lock:rwlock:a:0", "1234567890123456789", 0).await.unwrap();
    let error = other.rwlock("a").with_ttl(TTL).try_write().await.map(drop).expect_err("refused as if they agreed");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    reader.release().await.unwrap();
}

/// Two clients with the new limit come at the same moment, and each has a slot until it has read the former one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_nobody_has_permits_under_keeps_no_two_clients_from_another_one() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let former = client(&server, RestartPolicy::Off).await.semaphore("a", 5).with_ttl(TTL);
    former.acquire().await.unwrap().release().await.unwrap();
    let (one_link, one) = far(&server, RestartPolicy::Off).await;
    let (other_link, other) = far(&server, RestartPolicy::Off).await;
    let hold = || LinkFault::new(Toxic::Hold, Direction::ToServer);
    let acquires =
        |locks: MemcachedLocks| tokio::spawn(async move { locks.semaphore("a", 3).with_ttl(TTL).acquire().await });
    let still_has_slot = one_link.inject(hold().on_request(1, "md lock:semaphore:a:"));
    // It looks for permits in use, the limit behind them: first while the slot is there, and then when it has gone.
    let second_look = other_link.inject(hold().on_request(2, "mg lock:semaphore:a:limit v c t O"));
    let one = acquires(one);
    still_has_slot.applied(ms(15_000)).await.unwrap();
    let other = acquires(other);
    second_look.applied(ms(15_000)).await.unwrap();
    still_has_slot.heal().unwrap();
    one.await.unwrap().expect("refused by a limit that nobody uses").release().await.unwrap();
    second_look.heal().unwrap();
    other.await.unwrap().expect("refused by a limit that nobody uses").release().await.unwrap();
}

/// An error with its causes.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
