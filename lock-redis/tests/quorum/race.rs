//! Clients that race for one lock while servers stall.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lock_redis::MutexGuard;

use crate::servers::{ALL, PROMPTLY, Servers, ms};

/// Who is inside at present, as far as he has not said that he leaves.
type Inside = Arc<Mutex<(u32, Option<Arc<MutexGuard>>)>>;

async fn race(servers: &Servers, lasts: Duration) -> (Inside, Vec<tokio::task::JoinHandle<u32>>) {
    let inside = Inside::default();
    let mut racers = Vec::new();
    for _ in 0..4 {
        let mutex = servers.hasty_client().await.mutex("race").with_ttl(ms(1500));
        let inside = inside.clone();
        racers.push(tokio::spawn(async move {
            let (began, mut grants) = (Instant::now(), 0);
            while began.elapsed() < lasts {
                // Whatever the servers make of it.
                let Ok(held) = mutex.lock().await else { continue };
                let held = Arc::new(held);
                {
                    let mut inside = inside.lock().unwrap();
                    if held.is_held() {
                        let overlap = inside.1.as_ref().is_some_and(|other| other.is_held());
                        assert!(!overlap, "two are inside: {:?} and {held:?}", inside.1);
                        *inside = (inside.0 + 1, Some(held.clone()));
                    }
                }
                grants += 1;
                tokio::time::sleep(ms(3)).await;
                // Out before the release.
                inside.lock().unwrap().1.take_if(|other| Arc::ptr_eq(other, &held));
                let held = Arc::into_inner(held).expect("nobody else has it");
                let _ = held.release().await;
            }
            grants
        }));
    }
    (inside, racers)
}

async fn outcome(racers: Vec<tokio::task::JoinHandle<u32>>) -> Vec<u32> {
    let mut grants = Vec::new();
    for racer in racers {
        grants.push(tokio::time::timeout(PROMPTLY, racer).await.expect("a racer ends").unwrap());
    }
    println!("grants: {grants:?}");
    grants
}

#[tokio::test(flavor = "multi_thread")]
async fn racers_never_overlap_and_none_is_left_out() {
    let Some(servers) = Servers::start().await else { return };
    let (inside, racers) = race(&servers, ms(6000)).await;
    let grants = outcome(racers).await;
    assert!(grants.iter().all(|grants| *grants > 10), "{grants:?}");
    assert!(inside.lock().unwrap().0 > 200, "{} were seen inside", inside.lock().unwrap().0);
    servers.have_nothing_left(ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn racers_never_overlap_while_servers_stall_in_turn() {
    let Some(servers) = Servers::start().await else { return };
    let (inside, racers) = race(&servers, ms(14_000)).await;
    // Two at a time, a majority now and then, shorter and longer than the lease.
    for (which, time) in [(&[0, 1][..], 900), (&[1, 2], 2500), (&[2, 3, 4], 400), (&[0, 3, 4], 1900), (&[4, 0], 1800)] {
        tokio::time::sleep(ms(700)).await;
        servers.stop(which);
        tokio::time::sleep(ms(time)).await;
        servers.cont(which);
    }
    let grants = outcome(racers).await;
    assert!(inside.lock().unwrap().0 > 100, "{grants:?}");
    servers.have_nothing_left(ALL).await;
}
