//! Records beside mutexes: an item that others change between the look at it and the change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::ErrorKind;
use lock_testkit::ms;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit_servers::memcached::MemcachedOptions;

use crate::support::{LEASE, config, opened, server};

/// Nothing of it is written, and the lock is there as before: so it is to be tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_others_change_all_the_time_is_unavailable() {
    const RECORD: &str = "lock:record:held";
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let mut config = config(&server).with_longest_lease(LEASE * 10);
    config.url = format!("memcached://{}", link.address());
    // All the rounds have the time that they take.
    config.client.op_timeout = ms(30_000);
    let locks = opened(config).await;
    let held = locks.recorded("held").unwrap().with_ttl(LEASE * 10).lock().await.unwrap();
    held.write(b"mine").await.unwrap();
    let (raw, is_over) = (server.client(), Arc::new(AtomicBool::new(false)));
    let (value, over) = (raw.get(RECORD).await.unwrap().unwrap(), is_over.clone());
    let stored = format!("set {RECORD} 0 600 {}\r\n{}", value.len(), String::from_utf8(value).unwrap());
    let others = tokio::spawn(async move {
        while !over.load(Ordering::Relaxed) {
            raw.command(&stored).await.unwrap();
        }
    });
    // Each round takes so long that others are always faster, also where the machine stands still for a moment.
    let far_away = LinkFault::new(Toxic::Delay { by: ms(700), jitter: ms(0) }, Direction::ToServer);
    let far_away = link.inject(far_away);
    let error = held.write(b"never").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(held.is_held() && error.is_definite(), "{error}");
    far_away.heal().unwrap();
    is_over.store(true, Ordering::Relaxed);
    others.await.unwrap();
    held.write(b"again").await.unwrap();
    held.release().await.unwrap();
}
