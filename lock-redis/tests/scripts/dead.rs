//! Clients that died while they waited.

use crate::lock::{ALL, CHANNELS, Data, Lock, server, texts};
use crate::scripts::HOLDERS;

async fn ask(lock: &mut Lock, number: u64, waits: bool) -> bool {
    send(lock, number, waits).await;
    lock.look().await.0.held.contains_key(&format!("{number:032x}"))
}

/// Asks, and does not look at what that has changed.
async fn send(lock: &mut Lock, number: u64, waits: bool) {
    let (nonce, client, stays) = (format!("{number:032x}"), format!("{number:016x}"), if waits { "1" } else { "" });
    let args = [&*nonce, &client, "9000", "{}", stays, "", CHANNELS, "", "W"];
    lock.run(&HOLDERS.acquire, &ALL, &args).await.unwrap();
}

/// One holds the lock to the end of a test.
async fn hold(lock: &mut Lock) {
    let args = [&*format!("{:032x}", 1), &format!("{:016x}", 1), "86400000", "{}", "", "", CHANNELS, "", "W"];
    lock.run(&HOLDERS.acquire, &ALL, &args).await.unwrap();
}

async fn heartbeat(lock: &mut Lock, client: u64) -> Vec<String> {
    let args = [&*format!("{client:016x}"), CHANNELS, "", "7", ""];
    texts(lock.run(&HOLDERS.heartbeat, &ALL, &args).await.unwrap())
}

/// The numbers of those who wait, in their order.
fn waiting(data: &Data) -> Vec<u64> {
    data.queue.iter().map(|(member, _)| u64::from_str_radix(&member[..32], 16).unwrap()).collect()
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
    for _ in 0..3 {
        for client in [2, 3] {
            heartbeat(&mut lock, client).await;
        }
        assert!(lock.look().await.0.waiters.len() > 100, "they may be alive");
        lock.now += 1_010_000;
    }
    for client in [2, 3] {
        heartbeat(&mut lock, client).await;
    }
    let waiters = lock.look().await.0.waiters;
    let signs: Vec<_> = waiters.keys().filter(|field| field.starts_with('@')).cloned().collect();
    assert_eq!(signs, [2, 3].map(|client| format!("@{client:016x}")), "{waiters:?}");
    assert!(waiters.contains_key(&format!("{:032x}", 2)) && waiters.contains_key(&format!("{:032x}", 3)));
}

/// The one that wakes up first after a stall clears up. The other one's sign is as old, and it lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_stall_takes_no_place_from_one_that_lives_where_many_have_gone() {
    let Some(server) = server().await else { return };
    // Of one that waits, and of one of which the server has never heard.
    for first in [3, 99] {
        let mut lock = Lock::new(server.client().unwrap(), format!("stall{first}"));
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
            heartbeat(&mut lock, first).await;
            lock.now += 100_000;
        }
        let waiters = lock.look().await.0.waiters;
        assert!(waiters.contains_key(&format!("@{:016x}", 2)), "{first}: the next in turn counts as dead");
    }
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
async fn signs_of_clients_that_come_seldom_are_cleared_while_one_waits() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "seldom");
    hold(&mut lock).await;
    ask(&mut lock, 2, true).await;
    for number in 3..=300_u64 {
        ask(&mut lock, number, true).await;
        let nonce = format!("{number:032x}");
        lock.run(&HOLDERS.cancel, &ALL, &[&nonce, &nonce[16..], CHANNELS, ""]).await.unwrap();
        // A sign of life that clears nothing up.
        ask(&mut lock, 2, true).await;
        lock.now += 5_000_000;
    }
    assert_eq!(waiting(&lock.look().await.0), [2]);
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

#[tokio::test(flavor = "multi_thread")]
async fn dead_waiters_of_a_lock_that_stays_held_are_dropped_by_the_heartbeats_of_one_that_lives() {
    const DEAD: u64 = 1500;
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "held");
    hold(&mut lock).await;
    let living = DEAD + 2;
    for number in 2..=living {
        send(&mut lock, number, true).await;
    }
    for _ in 0..4 {
        heartbeat(&mut lock, living).await;
        assert_eq!(waiting(&lock.look().await.0).len() as u64, DEAD + 1, "they may be alive");
        lock.now += 1_000_000;
    }
    let mut heartbeats = 0;
    while heartbeat(&mut lock, living).await[2] == "-3" {
        heartbeats += 1;
        assert!(heartbeats < 10, "it comes to no end");
    }
    let left = lock.look().await.0;
    assert_eq!(waiting(&left), [living]);
    assert!(
        left.waiters.keys().all(|field| field.starts_with('#') || field.ends_with(&format!("{living:x}"))),
        "{left:?}"
    );
    assert!(left.held.contains_key(&format!("{:032x}", 1)), "nobody has released it");
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_live_keep_their_order_while_the_dead_among_them_are_dropped() {
    const ALL_OF_THEM: u64 = 400;
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "among");
    hold(&mut lock).await;
    for number in 2..=ALL_OF_THEM {
        send(&mut lock, number, true).await;
    }
    let living: Vec<_> = (2..=ALL_OF_THEM).filter(|number| number % 7 == 0).collect();
    for _ in 0..6 {
        lock.now += 1_000_000;
        for client in &living {
            heartbeat(&mut lock, *client).await;
        }
    }
    assert_eq!(waiting(&lock.look().await.0), living);
    // Nobody loses a place to those who come and go.
    for number in 1000..1100 {
        send(&mut lock, number, true).await;
    }
    assert_eq!(waiting(&lock.look().await.0)[..living.len()], living);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_that_come_and_die_at_a_lock_that_stays_held_are_no_more_than_may_be_alive() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "die");
    hold(&mut lock).await;
    // Twenty each second, and nobody sends heartbeats.
    let mut most = 0;
    for number in 2..=1000 {
        send(&mut lock, number, true).await;
        lock.now += 50_000;
        most = most.max(waiting(&lock.look().await.0).len());
    }
    assert!(most < 100, "{most} for the 60 of the last 3 s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_takes_no_place_in_the_queue_of_a_lock_that_stays_held() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "stood");
    hold(&mut lock).await;
    for number in 2..=10 {
        send(&mut lock, number, true).await;
    }
    lock.now += 10_000_000;
    // One is back at once, one comes anew; the others are a little later.
    for pass in 0..5 {
        heartbeat(&mut lock, 3).await;
        ask(&mut lock, 100 + pass, true).await;
        assert_eq!(waiting(&lock.look().await.0)[..9], (2..=10).collect::<Vec<_>>()[..]);
        lock.now += 590_000;
    }
    for client in 2..=9 {
        heartbeat(&mut lock, client).await;
    }
    lock.now += 600_000;
    heartbeat(&mut lock, 3).await;
    let left = waiting(&lock.look().await.0);
    assert_eq!(left[..8], (2..=9).collect::<Vec<_>>()[..], "those who are back have lost nothing");
    assert!(!left.contains(&10), "it had a liveness to come back");
}
