//! Requests that the server refuses in the middle of others: what was refused was not done, and of the rest that is unknown.

use std::time::Duration;

use lock_memcached::{ClientOptions, ErrorKind, LeaseOptions, LockName, MemcachedLocks, RestartPolicy, WriteGuard};
use lock_testkit::ms;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{LEASE, client, config, eventually, far, open, pass, server};

/// So long that nothing ends by itself meanwhile.
const TTL: Duration = Duration::from_secs(60);

/// The first request that contains this is refused, as by a server whose memory is full.
fn refused(request: &str) -> LinkFault {
    refused_at(1, request)
}

/// The nth request that contains this is refused.
fn refused_at(nth: u64, request: &str) -> LinkFault {
    let answer = Toxic::Answer { text: "SERVER_ERROR out of memory".to_owned() };
    LinkFault::new(answer, Direction::ToServer).on_request(nth, request)
}

/// A client without a guard behind a link, and one that is not.
async fn clients(server: &MemcachedServer) -> (Proxy, MemcachedLocks, MemcachedLocks) {
    let (link, locks) = far(server, RestartPolicy::Off).await;
    (link, locks, client(server, RestartPolicy::Off).await)
}

async fn is_there(server: &MemcachedServer, key: &str) -> bool {
    server.client().get(key).await.unwrap().is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_that_is_refused_leaves_the_writer_its_lock() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks, other) = clients(&server).await;
    let writer = locks.rwlock("a").with_ttl(TTL).write().await.unwrap();
    let full = link.inject(refused("ma lock:rwlock:a:"));
    let failed = writer.downgrade().await.unwrap_err();
    full.applied(ms(15_000)).await.unwrap();
    let writer = failed.guard;
    assert!(writer.is_held(), "{}", failed.error);
    assert!(other.rwlock("a").try_write().await.unwrap().is_none(), "another one writes beside it");
    writer.release().await.unwrap();
    other.rwlock("a").try_write().await.unwrap().unwrap().release().await.unwrap();
}

/// The write lock is another one's when it is to become a read lock, and the slot that was taken cannot be released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_of_a_write_lock_that_is_gone_leaves_nobody_who_believes() {
    for fault in [Toxic::Answer { text: "SERVER_ERROR out of memory".to_owned() }, Toxic::Reset] {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let (link, locks, other) = clients(&server).await;
        let writer = locks.rwlock("a").with_ttl(TTL).write().await.unwrap();
        assert!(server.client().delete("lock:rwlock:a:w").await.unwrap());
        let next = other.rwlock("a").with_ttl(TTL).write().await.unwrap();
        // The slot's is the first one or the second: over a new connection the writer's key is read before it would be deleted.
        let faults =
            [1, 2].map(|nth| LinkFault::new(fault.clone(), Direction::ToServer).on_request(nth, "md lock:rwlock:a:"));
        let faults = faults.map(|fault| link.inject(fault));
        let failed = writer.downgrade().await.unwrap_err();
        faults[0].applied(ms(15_000)).await.unwrap();
        assert_eq!(failed.error.kind(), ErrorKind::NotHeld, "{}", failed.error);
        assert!(!failed.guard.is_held(), "two write: {}", failed.error);
        let again = failed.guard.downgrade().await.expect_err("it reads beside a writer");
        assert!(matches!(again.error.kind(), ErrorKind::NotHeld | ErrorKind::Lost), "{}", again.error);
        assert!(next.is_held());
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_whose_answer_is_lost_is_done_when_it_is_asked_again() {
    // Longer than a machine with much to do stands still.
    let lease = ms(3_000);
    for (is_renewed, is_refused) in [(false, false), (true, false), (true, true)] {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let (link, locks, other) = clients(&server).await;
        let writer = locks.rwlock("a").with_ttl(lease).write().await.unwrap();
        let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, "md lock:rwlock:a:w"));
        let failed = writer.downgrade().await.unwrap_err();
        lost.applied(ms(15_000)).await.unwrap();
        lost.heal().unwrap();
        assert_eq!(failed.error.kind(), ErrorKind::Indeterminate, "{}", failed.error);
        assert!(!failed.guard.is_held(), "it may be a reader already");
        let mut failed = failed;
        if is_refused {
            // Over a new connection the key is read before it is deleted.
            let full = ["mg lock:rwlock:a:w", "md lock:rwlock:a:w"].map(|request| link.inject(refused(request)));
            failed = failed.guard.downgrade().await.unwrap_err();
            assert!(failed.error.is_definite(), "it was refused: {}", failed.error);
            drop(full);
        }
        if is_renewed {
            pass(lease * 2).await;
        }
        let reader = failed.guard.downgrade().await.unwrap_or_else(|failed| panic!("{}", failed.error));
        assert!(reader.is_held());
        assert!(other.rwlock("a").try_write().await.unwrap().is_none(), "another one writes beside it");
        other.rwlock("a").try_read().await.unwrap().expect("it still writes").release().await.unwrap();
        reader.release().await.unwrap();
        other.rwlock("a").try_write().await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_after_a_downgrade_without_an_answer_is_no_loss() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks, _) = clients(&server).await;
    let writer = locks.rwlock("a").with_ttl(TTL).write().await.unwrap();
    let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, "md lock:rwlock:a:w"));
    let failed = writer.downgrade().await.unwrap_err();
    lost.applied(ms(15_000)).await.unwrap();
    lost.heal().unwrap();
    failed.guard.release().await.unwrap();
}

/// The first downgrade does not reach the server, and the grant is taken away before it is asked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_that_is_asked_again_after_a_forced_release_gets_nothing() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks, other) = clients(&server).await;
    let writer = locks.rwlock("a").with_ttl(TTL).write().await.unwrap();
    let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToServer).on_request(1, "md lock:rwlock:a:w"));
    let failed = writer.downgrade().await.unwrap_err();
    lost.applied(ms(15_000)).await.unwrap();
    lost.heal().unwrap();
    assert_eq!(failed.error.kind(), ErrorKind::Indeterminate, "{}", failed.error);
    assert!(other.rwlock("a").force_release(failed.guard.grant_id(), "it hangs").await.unwrap());
    let next = other.rwlock("a").with_ttl(TTL).write().await.unwrap();
    let again = failed.guard.downgrade().await.expect_err("it reads beside a writer");
    assert_eq!(again.error.kind(), ErrorKind::NotHeld, "{}", again.error);
    assert!(!again.guard.is_held());
    next.release().await.unwrap();
}

/// The epoch is gone when the slot is claimed, so that the slot is released, without an answer: it is nobody's slot any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_whose_release_was_asked_for_is_no_reader_s_slot() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, writer) = eventually_writes(&server).await;
    assert!(server.client().delete("lock:epoch").await.unwrap());
    let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, "md lock:rwlock:a:"));
    let failed = writer.downgrade().await.unwrap_err();
    lost.applied(ms(15_000)).await.unwrap();
    lost.heal().unwrap();
    match failed.guard.downgrade().await {
        Ok(reader) => {
            let mut slots = 0;
            for number in 0..64 {
                slots += usize::from(is_there(&server, &format!("lock:rwlock:a:{number}")).await);
            }
            assert_eq!(slots, 1, "it reads without a slot: {reader:?}");
        }
        Err(failed) => assert_eq!(failed.error.kind(), ErrorKind::Unavailable, "{}", failed.error),
    }
}

/// The epoch is gone when the slot is claimed, and the slot cannot be released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_that_leaves_its_slot_behind_is_not_told_as_definite() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, writer) = eventually_writes(&server).await;
    assert!(server.client().delete("lock:epoch").await.unwrap());
    let full = link.inject(refused("md lock:rwlock:a:"));
    let failed = writer.downgrade().await.unwrap_err();
    full.applied(ms(15_000)).await.unwrap();
    assert_eq!(failed.error.kind(), ErrorKind::Indeterminate, "its slot is there: {}", failed.error);
    assert!(!failed.guard.is_held(), "it may be a reader already");
}

/// A write lock of a client behind a link, once the first quarantine is over: as long as its lease, which no hiccup outlasts.
async fn eventually_writes(server: &MemcachedServer) -> (Proxy, WriteGuard) {
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let mut config = config(server).with_longest_lease(LEASE * 6);
    config.url = format!("memcached://{}", link.address());
    let lock = MemcachedLocks::connect_with(config).await.unwrap().rwlock("a").with_ttl(LEASE * 6);
    let writer = lock.try_write_for(TTL).await.unwrap().expect("the quarantine does not end");
    (link, writer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_whose_release_is_not_answered_do_not_end_the_others() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks, other) = clients(&server).await;
    let lease = LeaseOptions::new(LEASE * 10).with_renew_every(ms(300));
    let mut held = locks.semaphore("a", 3).with_lease(lease).acquire_many(3).await.unwrap();
    // Those of the repetitions in the background are lost too, until the others were renewed.
    let lost = |nth| LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(nth, "md lock:semaphore:a:");
    let all_lost: Vec<_> = (1..=20).map(|nth| link.inject(lost(nth))).collect();
    assert_eq!(held.release_some(2).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    let before = held.remaining();
    eventually("it is renewed or lost", async || held.remaining() > before || !held.is_held()).await;
    drop(all_lost);
    eventually("two are free", async || other.semaphore("a", 3).available().await.unwrap() == 2).await;
    assert!(held.is_held(), "the one that was kept was lost with the others");
    held.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_that_is_refused_in_part_is_not_told_as_definite() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks, other) = clients(&server).await;
    let held = other.semaphore("a", 3).with_ttl(TTL).acquire_many(3).await.unwrap();
    let full = link.inject(refused_at(2, "md lock:semaphore:a:"));
    let error = locks.semaphore("a", 3).force_release(held.grant_id(), "it hangs").await.unwrap_err();
    full.applied(ms(15_000)).await.unwrap();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "two of three are free: {error}");
    assert!(locks.semaphore("a", 3).force_release(held.grant_id(), "it hangs").await.unwrap(), "one was left");
}

/// A writer that waits for a reader keeps its key at the server when its wait ends with an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_s_wait_that_ends_while_its_key_is_there_is_not_told_as_definite() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let other = client(&server, RestartPolicy::Off).await;
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let options = ClientOptions::default().with_lease(LeaseOptions::new(LEASE)).with_patience(ms(1_500));
    let mut config = config(&server).with_restart_policy(RestartPolicy::Off).with_client(options);
    config.url = format!("memcached://{}", link.address());
    let lock = MemcachedLocks::connect_with(config).await.unwrap().rwlock("a").with_ttl(TTL);
    let reader = other.rwlock("a").with_ttl(TTL).read().await.unwrap();
    let waiting = tokio::spawn(async move { lock.write().await });
    eventually("it waits for the reader", async || is_there(&server, "lock:rwlock:a:w").await).await;
    let refused = link.inject(LinkFault::new(Toxic::Refuse, Direction::Both));
    let reset = link.inject(LinkFault::new(Toxic::Reset, Direction::Both));
    let error = waiting.await.unwrap().expect_err("it is granted beside a reader");
    assert!(!error.is_definite(), "its key is there: {error}");
    drop((reset, refused));
    reader.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_that_was_claimed_after_a_refused_one_is_released() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks, _) = clients(&server).await;
    let full = link.inject(refused("ma lock:semaphore:a:0 "));
    let error = locks.semaphore("a", 2).with_ttl(TTL).try_acquire_many(2).await.unwrap_err();
    full.applied(ms(15_000)).await.unwrap();
    assert!(error.is_definite(), "what follows a refusal is answered: {error}");
    assert!(!is_there(&server, "lock:semaphore:a:1").await, "the other permit was left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_could_not_be_released_is_told_and_undone() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Quarantine).await;
    let full = link.inject(refused("md lock:mutex:a "));
    // The epoch is closed, so the claim does not count.
    let error = locks.mutex("a").try_lock().await.unwrap_err();
    full.applied(ms(15_000)).await.unwrap();
    assert!(!error.is_definite(), "its item was there: {error}");
    eventually("it is undone", async || !is_there(&server, "lock:mutex:a").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_is_refused_leaves_no_permit_behind() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks, other) = clients(&server).await;
    let full = link.inject(refused("mg lock:semaphore:a:limit "));
    let error = locks.semaphore("a", 1).with_ttl(TTL).try_acquire().await.unwrap_err();
    full.applied(ms(15_000)).await.unwrap();
    assert!(error.is_definite(), "{error}");
    other.semaphore("a", 1).try_acquire().await.unwrap().expect("a permit was left behind").release().await.unwrap();
}

/// To a claim of it the server answers with a refusal, and closes nothing; the client crate closes the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_item_without_any_text_is_somebody_s_lock() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let locks = open(&server).await;
    assert!(server.client().add("shared", "", 60).await.unwrap());
    let mutex = locks.mutex(LockName::from_key("shared").unwrap());
    assert!(mutex.try_lock().await.unwrap().is_none());
    assert!(mutex.try_lock_for(LEASE / 10).await.unwrap().is_none());
    assert!(server.client().delete("shared").await.unwrap());
    mutex.try_lock().await.unwrap().unwrap().release().await.unwrap();
}
