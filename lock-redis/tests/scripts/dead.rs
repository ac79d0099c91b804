//! Clients that died while they waited.

use crate::lock::{ALL, CHANNELS, Lock, server};
use crate::scripts::HOLDERS;

async fn ask(lock: &mut Lock, number: u64, waits: bool) -> bool {
    let (nonce, client, stays) = (format!("{number:032x}"), format!("{number:016x}"), if waits { "1" } else { "" });
    let args = [&*nonce, &client, "9000", "{}", stays, "", CHANNELS, "", "W"];
    lock.run(&HOLDERS.acquire, &ALL, &args).await.unwrap();
    lock.look().await.0.held.contains_key(&nonce)
}

fn heartbeat_of(client: u64) -> [String; 5] {
    [format!("{client:016x}"), CHANNELS.to_owned(), String::new(), "7".to_owned(), String::new()]
}

#[tokio::test(flavor = "multi_thread")]
async fn signs_of_clients_that_died_are_cleared_from_a_queue_that_never_empties() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "signs");
    assert!(ask(&mut lock, 1, true).await);
    for number in 2..=100 {
        ask(&mut lock, number, true).await;
    }
    // All but two are dropped from the queue, as a waiter is that is cancelled for a client that has gone.
    for number in 4..=100_u64 {
        let nonce = format!("{number:032x}");
        lock.run(&HOLDERS.cancel, &ALL, &[&nonce, &nonce[16..], CHANNELS, ""]).await.unwrap();
    }
    // The server stands still, and then everybody is given another 3 s.
    lock.now += 2_900_000;
    let heartbeat = heartbeat_of(2);
    let heartbeat = heartbeat.each_ref().map(|arg| &**arg);
    for _ in 0..3 {
        lock.run(&HOLDERS.heartbeat, &ALL, &heartbeat).await.unwrap();
        assert!(lock.look().await.0.waiters.len() > 100, "they may be alive");
        lock.now += 1_010_000;
    }
    lock.run(&HOLDERS.heartbeat, &ALL, &heartbeat).await.unwrap();
    let waiters = lock.look().await.0.waiters;
    let signs: Vec<_> = waiters.keys().filter(|field| field.starts_with('@')).collect();
    assert_eq!(signs, [&format!("@{:016x}", 2)], "{waiters:?}");
    assert!(waiters.contains_key(&format!("{:032x}", 2)) && waiters.contains_key(&format!("{:032x}", 3)));
}

/// The one that wakes up first after a stall clears up. The other one's sign is as old, and it lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_stall_takes_no_place_from_one_that_lives_where_many_have_gone() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "stall");
    for number in 1..=3 {
        ask(&mut lock, number, true).await;
    }
    for number in 4..=90_u64 {
        ask(&mut lock, number, true).await;
        let nonce = format!("{number:032x}");
        lock.run(&HOLDERS.cancel, &ALL, &[&nonce, &nonce[16..], CHANNELS, ""]).await.unwrap();
    }
    lock.now += 5_000_000;
    for _ in 0..5 {
        let heartbeat = heartbeat_of(3);
        lock.run(&HOLDERS.heartbeat, &ALL, &heartbeat.each_ref().map(|arg| &**arg)).await.unwrap();
        lock.now += 100_000;
    }
    assert!(lock.look().await.0.waiters.contains_key(&format!("@{:016x}", 2)), "the next in turn counts as dead");
}

/// As a client does with a grant that comes for a waiter that has given up: meanwhile that one may be queued again.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_goes_back_takes_its_waiters_place_along_and_nobody_elses() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "back");
    let [holder, unwanted, next] = [1, 2, 3].map(|number| format!("{number:032x}"));
    let client = format!("{:016x}", 2);
    assert!(ask(&mut lock, 1, true).await);
    for nonce in [&unwanted, &next] {
        let args = [&**nonce, &client, "9000", "{}", "1", "", CHANNELS, "", "W"];
        lock.run(&HOLDERS.acquire, &ALL, &args).await.unwrap();
    }
    lock.run(&HOLDERS.cancel, &ALL, &[&unwanted, &client, CHANNELS, "", "1"]).await.unwrap();
    let left = lock.look().await.0;
    assert_eq!(left.queue.iter().map(|(member, _)| member.clone()).collect::<Vec<_>>(), [format!("{next}:{client}")]);
    assert!(left.waiters.contains_key(&format!("@{client}")) && left.waiters.contains_key(&next), "{left:?}");
    // Its client is told by push, like any other one.
    lock.run(&HOLDERS.cancel, &ALL, &[&holder, &client, CHANNELS, "", "1"]).await.unwrap();
    let left = lock.look().await.0;
    assert!(left.held.contains_key(&next) && left.told.iter().any(|push| push.contains(&next)), "{left:?}");
}

/// Each of them comes when there was no sign for so long that the server may have stood still.
#[tokio::test(flavor = "multi_thread")]
async fn signs_of_clients_that_come_seldom_are_cleared_while_a_dead_one_waits() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "seldom");
    let holder = [&*format!("{:032x}", 1), &format!("{:016x}", 1), "86400000", "{}", "", "", CHANNELS, "", "W"];
    lock.run(&HOLDERS.acquire, &ALL, &holder).await.unwrap();
    ask(&mut lock, 2, true).await;
    for number in 3..=300_u64 {
        ask(&mut lock, number, true).await;
        let nonce = format!("{number:032x}");
        lock.run(&HOLDERS.cancel, &ALL, &[&nonce, &nonce[16..], CHANNELS, ""]).await.unwrap();
        lock.now += 5_000_000;
    }
    let waiters = lock.look().await.0.waiters.len();
    assert!(waiters < 120, "{waiters} fields");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_gets_past_any_number_of_dead_waiters() {
    let Some(server) = server().await else { return };
    for (every, dead) in [(100, 1), (100, 30), (700, 30), (1400, 5), (2500, 5)] {
        let mut lock = Lock::new(server.client().unwrap(), format!("tries{every}/{dead}"));
        for number in 1..=1 + dead {
            ask(&mut lock, number, true).await;
        }
        let died = lock.now;
        lock.ends_in(0).await;
        let mut tries = 1000;
        while !ask(&mut lock, tries, false).await {
            lock.now += every * 1000;
            tries += 1;
            let waited = (lock.now - died) / 1000;
            // Nobody gives a sign, so that it may be the server that stood still: that is seen after a claim that begins
            // 1.5 s late, the dead are spared for a liveness then, and the last of them has a claim at its end.
            assert!(waited <= 1500 + 2000 + 3000 + 2000 + 3 * every, "a try every {every} ms: none in {waited} ms");
        }
    }
}
