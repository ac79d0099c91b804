//! Requests that the server refuses in the middle of others: what was refused was not done, and of the rest that is unknown.

use std::time::Duration;

use lock_memcached::{LockName, MemcachedLocks, RestartPolicy};
use lock_testkit::ms;
use lock_testkit::proxy::{Direction, LinkFault, Proxy, Toxic};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{LEASE, client, eventually, far, open, server};

/// So long that nothing ends by itself meanwhile.
const TTL: Duration = Duration::from_secs(60);

/// The first request that contains this is refused, as by a server whose memory is full.
fn refused(request: &str) -> LinkFault {
    let answer = Toxic::Answer { text: "SERVER_ERROR out of memory".to_owned() };
    LinkFault::new(answer, Direction::ToServer).on_request(1, request)
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_that_was_claimed_after_a_refused_one_is_given_back() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks, _) = clients(&server).await;
    let full = link.inject(refused("ma lock:semaphore:a:0 "));
    let error = locks.semaphore("a", 2).with_ttl(TTL).try_acquire_many(2).await.unwrap_err();
    full.applied(ms(15_000)).await.unwrap();
    assert!(error.is_definite(), "what follows a refusal is answered: {error}");
    assert!(!is_there(&server, "lock:semaphore:a:1").await, "the other permit was left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_could_not_be_given_back_is_told_and_undone() {
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
    let mutex = locks.mutex(LockName::at_key("shared").unwrap());
    assert!(mutex.try_lock().await.unwrap().is_none());
    assert!(mutex.try_lock_for(LEASE / 10).await.unwrap().is_none());
    assert!(server.client().delete("shared").await.unwrap());
    mutex.try_lock().await.unwrap().unwrap().release().await.unwrap();
}
