//! Many leases of one client, and a link that loses their renewals.

use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use lock_core::LeaseOptions;
use lock_memcached::{ErrorKind, LossReason, MemcachedLocks, RestartPolicy};
use lock_testkit::ms;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit::testing::about_time;
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{LEASE, client, config, eventually, far, pass, server};

const LEASES: u64 = 120;

/// One round trip for each lease takes longer than what is left of them when the answers to their renewals are lost.
#[test]
fn renewals_that_were_carried_out_without_an_answer_are_found_out_together() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
        // Each unanswered request costs one, and over a new one an item is read before it is renewed.
        let mut config = config(&server).with_restart_policy(RestartPolicy::Off).with_connections(200);
        // For so many tries at once over a slow link, on a machine that others use.
        config.client.op_timeout = ms(4000);
        config.url = format!("memcached://{}", link.address());
        let locks = MemcachedLocks::connect_with(config).await.unwrap();
        let ttl = ms(16_000);
        let far_away =
            LinkFault::new(Toxic::Delay { by: Duration::from_millis(50), jitter: Duration::ZERO }, Direction::ToClient);
        let _far_away = link.inject(far_away);
        let old: Vec<_> = (0..LEASES + 40).map(|number| locks.mutex(format!("old/{number}"))).collect();
        // Each look has a connection of its own; locks and releases of so many go together.
        try_join_all(old.iter().map(|mutex| mutex.inspect())).await.unwrap();
        let mutexes: Vec<_> = (0..LEASES).map(|number| locks.mutex(format!("{number}")).with_ttl(ttl)).collect();
        let guards = try_join_all(mutexes.iter().map(|mutex| mutex.lock())).await.unwrap();

        let before = numbers(&server).await;
        let silence = link.inject(LinkFault::new(Toxic::Blackhole, Direction::ToClient));
        eventually("every renewal is carried out", async || {
            let now = numbers(&server).await;
            before.iter().zip(now).all(|(before, now)| *before != now)
        })
        .await;
        silence.heal().unwrap();
        eventually("every lease is renewed", async || {
            assert!(guards.iter().all(|guard| guard.is_held()), "a lease ended");
            guards.iter().all(|guard| guard.remaining() > ttl * 3 / 4)
        })
        .await;
        try_join_all(guards.into_iter().map(|guard| guard.release())).await.unwrap();
    });
}

const HOLDERS: usize = 100;

/// Each holder has a client of its own with one connection at first, so that the second extension opens another one and reads
/// the item before it changes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shorter_extension_over_a_new_connection_never_shortens_a_longer_one() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (short, long) = (LEASE * 2, LEASE * 20);
    let fresh = async || {
        let config = config(&server).with_restart_policy(RestartPolicy::Off).with_longest_lease(long);
        MemcachedLocks::connect_with(config).await.unwrap()
    };
    let began = Instant::now();
    let mut held = Vec::new();
    for number in 0..HOLDERS {
        let mutex = fresh().await.mutex(format!("{number}"));
        let guard = Arc::new(mutex.with_lease(LeaseOptions::new(short).with_auto_renew(false)).lock().await.unwrap());
        let together = Arc::new(Barrier::new(2));
        let both = [long, short].map(|ttl| {
            let (guard, together, runtime) = (guard.clone(), together.clone(), tokio::runtime::Handle::current());
            tokio::task::spawn_blocking(move || {
                together.wait();
                runtime.block_on(guard.extend(ttl))
            })
        });
        for one in both {
            one.await.unwrap().unwrap();
        }
        held.push(guard);
    }
    // Two seconds are stored with a margin of five, and one more of rounding.
    pass(short + LEASE * 7).await;
    let other = fresh().await;
    for (number, guard) in held.iter().enumerate() {
        let granted = other.mutex(format!("{number}")).try_lock().await.unwrap();
        assert!(granted.is_none() || !guard.is_held(), "{number}: granted although its holder believes in it");
    }
    let still = held.iter().filter(|guard| guard.is_held()).count();
    assert!(still > 0, "nobody holds any more, {:?} after the first extension: nothing was tested", began.elapsed());
}

/// Its key is changed as a renewal changes it that was carried out and not answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_writer_finds_its_key_again_after_a_renewal_without_an_answer() {
    const WRITER: &str = "lock:rwlock:a:w";
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    // Its first renewal is due after half of it.
    let ttl = LEASE * 20;
    let (holder, waiting) = (client(&server, RestartPolicy::Off).await, client(&server, RestartPolicy::Off).await);
    let reader = holder.rwlock("a").with_ttl(ttl).read().await.unwrap();
    let lock = waiting.rwlock("a").with_ttl(ttl);
    let writing = tokio::spawn(async move { lock.write().await });
    let key = async || server.client().gets(WRITER).await.unwrap();
    eventually("it waits", async || key().await.is_some()).await;
    assert!(server.client().command(&format!("ma {WRITER} D0")).await.unwrap().starts_with("HD"));
    let (value, changed) = key().await.unwrap();
    eventually("it renews its key", async || {
        let (still, now) = key().await.expect("its key is gone");
        assert_eq!(still, value, "its key is another one's");
        now != changed
    })
    .await;
    reader.release().await.unwrap();
    writing.await.unwrap().unwrap().release().await.unwrap();
}

/// The extension that finds the loss is dropped before it has said so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_one_permit_is_told_although_whoever_has_found_it_is_gone() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Off).await;
    let ttl = LEASE * 60;
    let mut found = Vec::new();
    for name in ["extended", "released", "shrunk"] {
        let permits = locks.semaphore(name, 3).with_ttl(ttl).acquire_many(3).await.unwrap();
        assert!(server.client().delete(&format!("lock:semaphore:{name}:0")).await.unwrap());
        let silence = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, ":forced:"));
        {
            let mut extending = pin!(permits.extend(ttl));
            tokio::select! {
                biased;
                told = &mut extending => panic!("told {told:?} before anything was heard of a forced release"),
                applied = silence.applied(ms(15_000)) => drop(applied.unwrap()),
            }
        }
        silence.heal().unwrap();
        found.push(permits);
    }
    let [extended, released, mut in_part] = <[_; 3]>::try_from(found).unwrap();
    let error = extended.extend(ttl).await.expect_err("two permits of three were renewed");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(!extended.is_held(), "held with {} permits, one of which may be another's", extended.permits());
    let error = released.release().await.expect_err("released, though one permit was lost before");
    assert_eq!(error.kind(), ErrorKind::NotHeld, "{error}");
    let error = in_part.release_some(1).await.expect_err("released in part, though one permit was lost before");
    assert_eq!(error.kind(), ErrorKind::NotHeld, "{error}");
    assert!(!in_part.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_of_some_permits_tells_that_one_of_them_was_lost() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let locks = client(&server, RestartPolicy::Off).await;
    let mut permits = locks.semaphore("a", 3).with_ttl(LEASE * 60).acquire_many(3).await.unwrap();
    assert!(server.client().delete("lock:semaphore:a:2").await.unwrap());
    let error = permits.release_some(1).await.expect_err("released, though it was lost before");
    assert_eq!(error.kind(), ErrorKind::NotHeld, "{error}");
    assert!(!permits.is_held());
    drop(permits);
    eventually("nothing is left", async || locks.semaphore("a", 3).inspect().await.unwrap().holders.is_empty()).await;
}

/// The extension that finds the loss is dropped before it has said so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_by_force_is_told_by_the_release_although_whoever_has_found_it_is_gone() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Off).await;
    let held = locks.mutex("a").with_ttl(LEASE * 60).lock().await.unwrap();
    let operator = MemcachedLocks::connect_with(config(&server).with_restart_policy(RestartPolicy::Off)).await.unwrap();
    assert!(operator.mutex("a").force_release(held.grant_id(), "it hangs").await.unwrap());
    let silence = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, ":forced:"));
    {
        let mut extending = pin!(held.extend(LEASE * 60));
        tokio::select! {
            biased;
            told = &mut extending => panic!("told {told:?} before anything was heard of a forced release"),
            applied = silence.applied(ms(15_000)) => drop(applied.unwrap()),
        }
    }
    silence.heal().unwrap();
    let error = held.release().await.expect_err("released, though it was freed by force");
    assert!(
        matches!(error.loss(), Some(LossReason::ForceReleased { reason, .. }) if reason == "it hangs"),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_is_told_in_time_although_nothing_is_heard_of_its_reason() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let mut config = config(&server).with_restart_policy(RestartPolicy::Off);
    config.url = format!("memcached://{}", link.address());
    let locks = MemcachedLocks::connect_with(config).await.unwrap();
    let ttl = LEASE * 60;
    let permits = locks.semaphore("a", 3).with_ttl(ttl).acquire_many(3).await.unwrap();
    assert!(server.client().delete("lock:semaphore:a:0").await.unwrap());
    let silence = link.inject(LinkFault::new(Toxic::Hold, Direction::Both).on_request(1, ":forced:"));
    let error = permits.extend(ttl).await.expect_err("two permits of three were renewed");
    silence.heal().unwrap();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(!permits.is_held());
}

/// The CAS number of each lease's item, which a renewal changes.
async fn numbers(server: &MemcachedServer) -> Vec<u64> {
    let client = server.client();
    let numbers =
        (0..LEASES).map(async |number| client.gets(&format!("lock:mutex:{number}")).await.unwrap().unwrap().1);
    join_all(numbers).await
}
