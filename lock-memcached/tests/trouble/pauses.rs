//! A server that stands still, and goes on with an old clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lock_memcached::ErrorKind;
use lock_testkit::servers::memcached::MemcachedOptions;

use crate::support::{LEASE, eventually, open, pass, server};

/// Longer than the margin of 3 s by which items outlive their leases.
const PAUSE: Duration = Duration::from_secs(4);
const HOLD: Duration = Duration::from_millis(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pauses_of_the_server_under_contention_let_no_two_in() {
    nobody_enters_beside_another(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn twenty_four_pauses_let_no_two_in() {
    nobody_enters_beside_another(24).await;
}

/// Twelve clients contend for one lock, while the server stands still so often.
async fn nobody_enters_beside_another(pauses: usize) {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (inside, worst) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (grants, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let mut workers = Vec::new();
    for _ in 0..12 {
        let mutex = open(&server).await.mutex("held");
        let (inside, worst, grants, done) = (inside.clone(), worst.clone(), grants.clone(), done.clone());
        workers.push(tokio::spawn(async move {
            while !done.load(Ordering::SeqCst) {
                match mutex.try_lock_for(LEASE).await {
                    Ok(Some(guard)) => {
                        // Counted only while the guard says that it holds, before and after.
                        if guard.is_held() {
                            let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                            if guard.is_held() {
                                worst.fetch_max(now, Ordering::SeqCst);
                                grants.fetch_add(1, Ordering::SeqCst);
                            }
                            pass(HOLD).await;
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                        let _ = guard.release().await;
                    }
                    Ok(None) => {}
                    Err(error) => assert!(
                        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::TimedOut),
                        "{error}"
                    ),
                }
            }
        }));
    }
    for _ in 0..pauses {
        let before = grants.load(Ordering::SeqCst);
        eventually("locks are granted", async || grants.load(Ordering::SeqCst) > before + 10).await;
        server.stop().unwrap();
        pass(PAUSE).await;
        server.cont().unwrap();
    }
    let before = grants.load(Ordering::SeqCst);
    eventually("locks are granted at last", async || grants.load(Ordering::SeqCst) > before + 10).await;
    done.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(worst.load(Ordering::SeqCst), 1, "so many were inside at once");
    println!("{pauses} pauses of {PAUSE:?}, {} grants: never two inside", grants.load(Ordering::SeqCst));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_a_frozen_server_carries_out_late_is_undone() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let locks = open(&server).await;
    server.stop().unwrap();
    let error = locks.mutex("held").try_lock().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Indeterminate | ErrorKind::Unavailable), "{error}");
    server.cont().unwrap();
    // Undone in the background, or never carried out; it ends by itself only after four seconds.
    eventually("the lock is free", async || matches!(locks.mutex("held").try_lock().await, Ok(Some(_)))).await;
}
