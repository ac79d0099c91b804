//! Requests that do not fit what is at the key, or fit in spite of the queue.

use crate::lock::{ALL, CHANNELS, Lock, server};
use crate::scripts::{HOLDERS, MUTEX, Scripts};

const A: &str = "0000000000000000000000000000000a";
const B: &str = "0000000000000000000000000000000b";
const C: &str = "0000000000000000000000000000000c";
const D: &str = "0000000000000000000000000000000d";

async fn ask(
    lock: &mut Lock,
    scripts: &'static Scripts,
    nonce: &str,
    waits: bool,
    mode: &str,
) -> Result<String, String> {
    let stays = if waits { "1" } else { "" };
    let args = [nonce, &nonce[16..], "9000", "{}", stays, "", CHANNELS, "", mode];
    lock.run(&scripts.acquire, &ALL, &args).await.map(|value| value.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_that_meet_at_one_key_with_waiters_only_refuse_each_other() {
    let Some(server) = server().await else { return };
    let owner = format!("O{A}");
    let kinds: [(&'static Scripts, &str); 4] = [(&MUTEX, ""), (&HOLDERS, "R"), (&HOLDERS, &owner), (&HOLDERS, "P2/5")];
    for (i, (scripts, mode)) in kinds.into_iter().enumerate() {
        for (other, wanted) in kinds.into_iter().enumerate().filter(|(j, _)| *j != i).map(|(_, kind)| kind) {
            let mut lock = Lock::new(server.client().unwrap(), format!("{mode}/{wanted}"));
            let holds = if mode == "R" {
                "W"
            } else if mode == "P2/5" {
                "P5/5"
            } else {
                mode
            };
            let holds = if mode == owner { format!("O{B}") } else { holds.to_owned() };
            ask(&mut lock, scripts, A, true, &holds).await.unwrap();
            ask(&mut lock, scripts, B, true, mode).await.unwrap();
            lock.ends_in(0).await;
            for waits in [false, true] {
                let refused = ask(&mut lock, other, C, waits, wanted).await.unwrap_err();
                assert!(refused.starts_with("LOCKKIND "), "{wanted} among {mode}: {refused}");
                let left = lock.look().await.0;
                assert!(left.queue.iter().all(|(member, _)| !member.starts_with(C)) && !left.held.contains_key(C));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_who_died_do_not_bind_a_newcomer_to_their_limit() {
    let Some(server) = server().await else { return };
    for waits in [false, true] {
        let mut lock = Lock::new(server.client().unwrap(), format!("dead{waits}"));
        ask(&mut lock, &HOLDERS, A, true, "P5/5").await.unwrap();
        ask(&mut lock, &HOLDERS, B, true, "P1/5").await.unwrap();
        let refused = ask(&mut lock, &HOLDERS, C, waits, "P1/3").await.unwrap_err();
        assert!(refused.starts_with("LOCKLIMIT 5"), "{refused}");
        // The holder has gone, and the waiter has given no sign for longer than any grace.
        lock.ends_in(0).await;
        lock.now += 10_000_000;
        let _ = ask(&mut lock, &HOLDERS, C, waits, "P1/3").await;
        lock.now += 4_000_000;
        let granted = ask(&mut lock, &HOLDERS, C, waits, "P1/3").await;
        assert!(granted.is_ok() && lock.look().await.0.held.contains_key(C), "{granted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_owner_came_in_meanwhile_enters_and_keeps_no_place_that_could_shorten_its_lease() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "again");
    let [us, them, first] = [A, B, D].map(|owner| format!("O{owner}"));
    for (nonce, owner) in [(D, &first), (A, &us), (B, &them), (C, &us)] {
        ask(&mut lock, &HOLDERS, nonce, true, owner).await.unwrap();
    }
    let release = [D, &D[16..], CHANNELS, ""];
    lock.run(&HOLDERS.release, &ALL, &release).await.unwrap();
    assert!(lock.look().await.0.held.contains_key(A));
    // C waits behind somebody else, and asks again while its owner is inside.
    ask(&mut lock, &HOLDERS, C, true, &us).await.unwrap();
    lock.run(&HOLDERS.cancel, &ALL, &[B, &B[16..], CHANNELS, ""]).await.unwrap();
    let mut data = lock.look().await.0;
    let record = data.held.remove(C).unwrap();
    assert!(record.starts_with(&(lock.now / 1000 + 9000).to_string()) && data.queue.is_empty(), "{record} {data:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_more_ended_leases_than_one_run_counts_a_newcomer_is_told_to_ask_again() {
    let Some(server) = server().await else { return };
    let requests = [(true, "P1/1500"), (false, "P1/1500"), (true, "R"), (false, "R")];
    for (waits, mode) in requests {
        let mut lock = Lock::new(server.client().unwrap(), format!("ended{waits}{mode}"));
        for number in 0..1600 {
            ask(&mut lock, &HOLDERS, &format!("{number:031x}f"), false, "P1/5000").await.unwrap();
        }
        // Beside leases that last it is definite.
        let refused = ask(&mut lock, &HOLDERS, C, waits, mode).await.unwrap_err();
        assert!(refused.starts_with("LOCKLIMIT 5000") || refused.starts_with("LOCKKIND"), "{refused}");
        lock.now += 10_000_000;
        let mut asked = 0;
        while !lock.look().await.0.held.contains_key(C) {
            asked += 1;
            assert!(asked < 10, "still not granted");
            // Nobody holds anything: never refused.
            ask(&mut lock, &HOLDERS, C, waits, mode).await.unwrap();
        }
        assert!(asked > 1, "one run counts 500");
        // The leases of those who hold it bind a newcomer again.
        let refused = ask(&mut lock, &HOLDERS, A, waits, "P1/5000").await.unwrap_err();
        assert!(refused.starts_with("LOCKLIMIT 1500") || refused.starts_with("LOCKKIND"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_more_dead_waiters_than_one_run_drops_a_newcomer_is_told_to_ask_again() {
    let Some(server) = server().await else { return };
    for waits in [false, true] {
        let mut lock = Lock::new(server.client().unwrap(), format!("many{waits}"));
        ask(&mut lock, &HOLDERS, A, true, "P5/5").await.unwrap();
        for number in 0..700 {
            ask(&mut lock, &HOLDERS, &format!("{number:031x}f"), true, "P1/5").await.unwrap();
        }
        let refused = ask(&mut lock, &HOLDERS, C, waits, "P1/3").await.unwrap_err();
        assert!(refused.starts_with("LOCKLIMIT 5"), "the holder has another limit: {refused}");
        lock.ends_in(0).await;
        // Who was alive is spared once, as the server may have stood still.
        lock.now += 10_000_000;
        let refused = ask(&mut lock, &HOLDERS, C, waits, "P1/3").await;
        lock.now += 8_000_000;
        let granted = match refused {
            Err(refused) => {
                assert!(refused.starts_with("LOCKLIMIT 5"), "{refused}");
                let again = ask(&mut lock, &HOLDERS, C, waits, "P1/3").await.unwrap();
                // Five of them had been let in.
                assert_eq!(lock.look().await.0.queue.len(), 95, "one run drops 600: {again}");
                assert!(!lock.look().await.0.held.contains_key(C));
                ask(&mut lock, &HOLDERS, C, waits, "P1/3").await
            }
            granted => granted,
        };
        assert!(granted.is_ok() && lock.look().await.0.held.contains_key(C), "{granted:?}");
    }
}
