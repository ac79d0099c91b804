//! Waiters of one process: one of them asks, and a lock stays within the process for a while only.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use lock_memcached::{Error, Mutex, MutexGuard, RestartPolicy};
use lock_testkit::ms;
use lock_testkit::testing::about_time;
use lock_testkit_servers::memcached::MemcachedOptions;

use crate::support::{client, eventually, open, pass, server};

const HOLD: Duration = Duration::from_millis(1);
/// Longer than one client has a lock in a row.
const ROW: Duration = Duration::from_millis(110);
/// A lease that no machine's hiccup outlasts.
const LONG: Duration = Duration::from_secs(30);

/// A wait that has its place already.
fn queued(mutex: &Mutex) -> impl Future<Output = Result<MutexGuard, Error>> + Send + use<> {
    let mutex = mutex.clone();
    let mut wait = Box::pin(async move { mutex.lock().await });
    assert!((&mut wait).now_or_never().is_none(), "the lock is free");
    wait
}

/// Takes the lock, and releases it.
async fn used(wait: impl Future<Output = Result<MutexGuard, Error>>) {
    wait.await.unwrap().release().await.unwrap();
}

/// A wait that pauses between two looks, and is not polled any more.
async fn kept(mutex: &Mutex) -> impl Future<Output = Result<MutexGuard, Error>> + Send + Unpin + use<> {
    let mut wait = Box::pin(queued(mutex));
    assert!(tokio::time::timeout(ms(300), &mut wait).await.is_err(), "the lock is free");
    wait
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_not_polled_keeps_nobody_from_a_free_lock_and_goes_on_later() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (holder, waiting) = (client(&server, RestartPolicy::Off).await, client(&server, RestartPolicy::Off).await);
    let held = holder.mutex("held").with_ttl(LONG).lock().await.unwrap();
    let mutex = waiting.mutex("held").with_ttl(LONG);
    let (mut still, behind) = (kept(&mutex).await, tokio::spawn(queued(&mutex)));
    held.release().await.unwrap();
    let guard = tokio::time::timeout(ms(8000), behind).await.expect("the lock is free").unwrap().unwrap();
    assert!((&mut still).now_or_never().is_none(), "the lock is not free");
    guard.release().await.unwrap();
    let again = mutex.try_lock_for(ms(8000)).await.unwrap().expect("the lock is free");
    again.release().await.unwrap();
    let late = tokio::time::timeout(ms(8000), still).await.expect("the lock is free").unwrap();
    late.release().await.unwrap();
    assert!(mutex.inspect().await.unwrap().holders.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_not_polled_when_its_turn_comes_keeps_none_of_many_from_a_free_lock() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (holder, waiting) = (client(&server, RestartPolicy::Off).await, client(&server, RestartPolicy::Off).await);
    let held = holder.mutex("held").with_ttl(LONG).lock().await.unwrap();
    let mutex = waiting.mutex("held").with_ttl(LONG);
    let before: Vec<_> = (0..2).map(|_| tokio::spawn(used(queued(&mutex)))).collect();
    let mut still = Box::pin(queued(&mutex));
    let behind: Vec<_> = (0..3).map(|_| tokio::spawn(used(queued(&mutex)))).collect();
    held.release().await.unwrap();
    for wait in before.into_iter().chain(behind) {
        tokio::time::timeout(ms(8000), wait).await.expect("the lock is free").unwrap();
    }
    tokio::time::timeout(ms(5000), used(&mut still)).await.expect("the lock is free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_not_polled_is_not_handed_the_lock() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let locks = client(&server, RestartPolicy::Off).await;
    let mutex = locks.mutex("held").with_ttl(LONG);
    let held = mutex.lock().await.unwrap();
    let (still, behind) = (kept(&mutex).await, tokio::spawn(queued(&mutex)));
    // Its next look is late by then.
    pass(ms(300)).await;
    held.release().await.unwrap();
    let guard = tokio::time::timeout(ms(8000), behind).await.expect("the lock is free").unwrap().unwrap();
    guard.release().await.unwrap();
    drop(still);
    let again = mutex.try_lock_for(ms(8000)).await.unwrap().expect("the lock is free");
    again.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_idle_waiters_ask_no_more_than_one() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (holder, waiting) = (client(&server, RestartPolicy::Off).await, client(&server, RestartPolicy::Off).await);
    let held = holder.mutex("held").with_ttl(LONG).lock().await.unwrap();
    let mutex = waiting.mutex("held").with_ttl(LONG);
    let waiters: Vec<_> = (0..50).map(|_| tokio::spawn(queued(&mutex))).collect();
    let gets = async || server.client().stats("").await.unwrap()["cmd_get"].parse::<u64>().unwrap();
    let at_first = gets().await;
    // The first pauses are short.
    eventually("they ask", async || gets().await > at_first + 20).await;
    let (before, began) = (gets().await, Instant::now());
    eventually("they go on asking", async || gets().await >= before + 80).await;
    let (asked, took) = (gets().await - before, began.elapsed());
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    // Renewals of the holder read too, a few each.
    assert!(u128::from(asked) <= took.as_millis() * 55 / 1000 + 5, "{asked} reads in {took:?}");
    held.release().await.unwrap();
}

#[test]
fn a_lock_is_handed_over_in_the_order_of_the_waiters_with_growing_tokens() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let locks = open(&server).await;
        let mutex = locks.mutex("held");
        let mut held = mutex.lock().await.unwrap();
        let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..20 {
            let (wait, served) = (queued(&mutex), served.clone());
            tokio::spawn(async move { served.send((number, wait.await.unwrap())) });
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
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_process_leaves_others_their_turn() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (busy, other) = (client(&server, RestartPolicy::Off).await, client(&server, RestartPolicy::Off).await);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let mutex = busy.mutex("held").with_ttl(LONG);
            tokio::spawn(async move {
                loop {
                    let guard = mutex.lock().await.unwrap();
                    pass(HOLD).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for _ in 0..5 {
        let turn = other.mutex("held").with_ttl(LONG).try_lock_for(ms(5000)).await.unwrap();
        turn.expect("a turn").release().await.unwrap();
    }
    assert!(tasks.iter().all(|task| !task.is_finished()), "a task of the busy process failed");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

#[test]
fn a_client_that_others_kept_waiting_leaves_the_lock_free_now_and_then() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let (one, other) = (client(&server, RestartPolicy::Off).await, client(&server, RestartPolicy::Off).await);
        let (ours, theirs) = (one.mutex("held").with_ttl(LONG), other.mutex("held").with_ttl(LONG));
        let held = theirs.lock().await.unwrap();
        let wait = queued(&ours);
        let asking = tokio::spawn(wait);
        let gets = async || server.client().stats("").await.unwrap()["cmd_get"].parse::<u64>().unwrap();
        eventually("it was refused, and asks", async || gets().await > 3).await;
        held.release().await.unwrap();
        asking.await.unwrap().unwrap().release().await.unwrap();
        // A row that lasts for so long is over.
        let guard = ours.lock().await.unwrap();
        pass(ROW).await;
        guard.release().await.unwrap();
        let began = Instant::now();
        let guard = ours.lock().await.unwrap();
        assert!(began.elapsed() >= ROW / 5, "nobody else had a chance: free for {:?}", began.elapsed());
        guard.release().await.unwrap();
    });
}

/// This client waits for 4,000 permits as well, all at one pace: whoever is not woken looks after two seconds at the earliest.
#[test]
fn a_row_that_ends_costs_the_next_one_no_pause_of_its_own() {
    const WAITERS: usize = 30;
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let (other, locks) = (client(&server, RestartPolicy::Off).await, client(&server, RestartPolicy::Off).await);
        let (mut others, mut waiting) = (Vec::new(), Vec::new());
        for name in ["a", "b", "c", "d"] {
            let all = other.semaphore(name, 1000).with_ttl(LONG).try_acquire_many(1000).await.unwrap();
            others.push(all.expect("nobody holds any"));
            let permits = locks.semaphore(name, 1000).with_ttl(LONG);
            waiting.push(tokio::spawn(async move { permits.acquire_many(2).await }));
        }
        let gets = async || server.client().stats("").await.unwrap()["cmd_get"].parse::<u64>().unwrap();
        let before = gets().await;
        eventually("they ask", async || gets().await >= before + 4000).await;
        let mutex = locks.mutex("held").with_ttl(LONG);
        let held = mutex.lock().await.unwrap();
        let (served, mut grants) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..WAITERS {
            let (wait, served) = (queued(&mutex), served.clone());
            tokio::spawn(async move {
                let guard = wait.await.unwrap();
                served.send(Instant::now()).unwrap();
                // A row ends while the next one pauses already.
                pass(ROW / 4).await;
                // The test may be over, and its server.
                let _ = guard.release().await;
            });
        }
        held.release().await.unwrap();
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        for _ in 0..WAITERS {
            let granted = tokio::time::timeout(ms(15_000), grants.recv()).await.unwrap().unwrap();
            longest = longest.max(granted.saturating_duration_since(last));
            last = granted;
        }
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        assert!(longest < ms(1000), "{longest:?} from one grant to the next");
    });
}
