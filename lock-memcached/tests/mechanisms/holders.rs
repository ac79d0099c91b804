//! Descriptions of holders and waiting writers that are lost on their way to the server.

use std::time::Duration;

use lock_core::{FencingToken, Holder, Mutex};
use lock_memcached::{MemcachedLocks, RestartPolicy};
use lock_testkit::ms;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{config, eventually, far, opened, server};

/// The beginning of the request that describes a holder.
const DESCRIBES: &str = "ms lock:holder:";

/// So long that a lease outlasts any pause of the machine, and so short that it is renewed soon.
const TTL: Duration = Duration::from_secs(6);

async fn holder(lock: &Mutex) -> Option<Holder> {
    lock.inspect().await.unwrap().holders.into_iter().next()
}

/// A client behind a link, once the first quarantine is over.
async fn opened_behind(server: &MemcachedServer) -> (Proxy, MemcachedLocks) {
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let mut config = config(server).with_longest_lease(TTL);
    config.url = format!("memcached://{}", link.address());
    let locks = opened(config).await;
    (link, locks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_description_was_lost_is_described_again_with_a_renewal() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = opened_behind(&server).await;
    let refused = Toxic::Answer { text: "SERVER_ERROR out of memory".to_owned() };
    for (toxic, name) in [(Toxic::Reset, "reset"), (Toxic::Swallow, "swallowed"), (refused, "refused")] {
        let lost = link.inject(LinkFault::new(toxic, Direction::ToServer).on_request(1, DESCRIBES));
        let lock = locks.mutex(name).with_ttl(TTL);
        let guard = lock.lock().await.unwrap();
        lost.applied(ms(15_000)).await.unwrap();
        let is_shown = async || holder(&lock).await.is_some_and(|holder| holder.grant == Some(guard.grant_id()));
        eventually(&format!("its holder is known, the description {name}"), is_shown).await;
        let shown = holder(&lock).await.unwrap();
        assert_eq!(shown.token, guard.fencing_token().map(FencingToken::as_u64));
        assert!(shown.token.is_some() && shown.owner.is_some());
        lost.heal().unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_writer_whose_description_was_lost_is_described_again() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Off).await;
    let reader = locks.rwlock("a").read().await.unwrap();
    eventually("the reader is described", async || {
        let holders = locks.rwlock("a").inspect().await.unwrap().holders;
        holders.iter().any(|holder| holder.grant == Some(reader.grant_id()))
    })
    .await;
    let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToServer).on_request(1, DESCRIBES));
    let writer = tokio::spawn({
        let lock = locks.rwlock("a");
        async move { lock.write().await }
    });
    lost.applied(ms(15_000)).await.unwrap();
    eventually("the writer is shown", async || !locks.rwlock("a").inspect().await.unwrap().waiters.is_empty()).await;
    lost.heal().unwrap();
    reader.release().await.unwrap();
    writer.await.unwrap().unwrap().release().await.unwrap();
}

/// One request that describes holders is held up, and more holders than can wait for the next one come meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_that_were_too_many_to_be_described_at_once_are_described_with_their_renewals() {
    const MANY: usize = 1500;
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = opened_behind(&server).await;
    let held_up = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, DESCRIBES));
    let locks: Vec<_> = (0..MANY).map(|number| locks.mutex(format!("{number}")).with_ttl(TTL)).collect();
    let first = locks[0].lock().await.unwrap();
    held_up.applied(ms(15_000)).await.unwrap();
    let guards = futures_util::future::join_all(locks[1..].iter().map(|lock| lock.lock())).await;
    held_up.heal().unwrap();
    let last = guards.last().unwrap().as_ref().unwrap().grant_id();
    let is_shown = async || holder(&locks[MANY - 1]).await.is_some_and(|holder| holder.grant == Some(last));
    eventually("the last one is described", is_shown).await;
    for guard in guards {
        guard.unwrap().release().await.unwrap();
    }
    first.release().await.unwrap();
}
