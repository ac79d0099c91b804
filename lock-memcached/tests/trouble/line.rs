//! Waiters of one process: one of them asks, and a lock stays within the process for a while only.

use lock_memcached::RestartGuard;
use lock_testkit::ms;
use lock_testkit::servers::memcached::MemcachedOptions;

use crate::support::{client, open, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_idle_waiters_ask_no_more_than_one() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (holder, waiting) = (open(&server).await, open(&server).await);
    let held = holder.mutex("held").lock().await.unwrap();
    let mutex = waiting.mutex("held");
    let waiters: Vec<_> = (0..50)
        .map(|_| {
            tokio::spawn({
                let mutex = mutex.clone();
                async move { mutex.lock().await }
            })
        })
        .collect();
    let gets = async || server.client().stats("").await.unwrap()["cmd_get"].parse::<u64>().unwrap();
    tokio::time::sleep(ms(300)).await;
    let before = gets().await;
    tokio::time::sleep(ms(2000)).await;
    let asked = gets().await - before;
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    // Renewals of the holder read too, a few each.
    assert!((10..=110).contains(&asked), "{asked} reads in 2 s");
    held.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_handed_over_in_the_order_of_the_waiters_with_growing_tokens() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let locks = open(&server).await;
    let mutex = locks.mutex("held");
    let mut held = mutex.lock().await.unwrap();
    let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..20 {
        let (mutex, served) = (mutex.clone(), served.clone());
        tokio::spawn(async move { served.send((number, mutex.lock().await.unwrap())) });
        tokio::time::sleep(ms(2)).await;
    }
    for expected in 0..20 {
        let former = held.fencing_token();
        held.release().await.unwrap();
        let (number, next) = tokio::time::timeout(ms(5000), order.recv()).await.unwrap().unwrap();
        assert_eq!(number, expected);
        assert!(next.fencing_token() > former);
        held = next;
    }
    held.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_process_leaves_others_their_turn() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (busy, other) = (client(&server, RestartGuard::Off).await, client(&server, RestartGuard::Off).await);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let mutex = busy.mutex("held");
            tokio::spawn(async move {
                loop {
                    let guard = mutex.lock().await.unwrap();
                    tokio::time::sleep(ms(1)).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for _ in 0..5 {
        let turn = other.mutex("held").try_lock_for(ms(5000)).await.unwrap();
        turn.expect("a turn").release().await.unwrap();
    }
    assert!(tasks.iter().all(|task| !task.is_finished()), "a task of the busy process failed");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}
