//! Claims that are dropped when they have hardly begun: the entry tells by its turn whether anything is under way.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::Owner;
use lock_core::driver::{Attempt, Backend, Cancelled, Kind, MutexBackend};
use lock_testkit::testing::{eventually, installed};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::{MemcachedBackend, MemcachedConfig, RestartPolicy, connect};

/// So long that nothing ends by itself.
const TTL: Duration = Duration::from_secs(60);
const KEY: &str = "lock:mutex:a";

async fn connected() -> Option<(MemcachedServer, MemcachedBackend, Attempt)> {
    let server = installed(MemcachedServer::start_with(&MemcachedOptions::new()).await)?;
    let config = MemcachedConfig::new(server.url()).with_restart_policy(RestartPolicy::Off).with_longest_lease(TTL);
    let backend = connect::connect(&config).await.unwrap();
    let attempt = Attempt::new("a".into(), Kind::Mutex, Owner::new(), TTL).unwrap();
    Some((server, backend, attempt))
}

/// Polls a future for a task that has used up its share of the runtime's time.
fn poll_late<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>, context: &mut Context<'_>) -> Poll<T> {
    while pin!(tokio::task::consume_budget()).poll(context).is_ready() {}
    future.poll(context)
}

#[tokio::test]
async fn a_claim_that_is_dropped_before_its_turn_is_never_sent() {
    let Some((server, backend, attempt)) = connected().await else { return };
    let entry = backend.acquirer.register(&attempt).unwrap();
    let others = entry.turn().await;
    let claim = backend.acquirer.claim(&attempt, &entry, vec![entry.lock.clone()], Vec::new());
    assert!(claim.now_or_never().is_none(), "it has its turn already");
    drop(others);
    // Whatever waits for its turn has it before this.
    drop(entry.turn().await);
    assert!(entry.is_empty(), "it goes on");
    assert_eq!(server.client().get(KEY).await.unwrap(), None);
    assert_eq!(backend.cancel(&attempt).await.unwrap(), Cancelled::Settled);
}

#[tokio::test]
async fn a_try_that_is_dropped_by_a_task_without_time_left_takes_nothing_once_its_cancellation_is_settled() {
    let Some((server, backend, attempt)) = connected().await else { return };
    let entry = backend.acquirer.register(&attempt).unwrap();
    let mut attempted = backend.try_lock(&attempt);
    assert!(poll_fn(|context| Poll::Ready(poll_late(attempted.as_mut(), context))).await.is_pending());
    drop(attempted);
    let settled = async || backend.cancel(&attempt).await.unwrap() == Cancelled::Settled;
    eventually("the cancellation is settled", TTL, settled).await;
    // Meanwhile whatever was left to go on goes on.
    let raw = server.client();
    raw.get(KEY).await.unwrap();
    drop(entry.turn().await);
    assert_eq!(raw.get(KEY).await.unwrap(), None, "taken after its cancellation");
}
