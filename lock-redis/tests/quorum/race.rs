//! Clients that race for one lock while servers stall.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use lock_redis::MutexGuard;
use tokio::task::JoinHandle;

use crate::servers::{ALL, PROMPTLY, Servers, eventually, ms};

/// The task that is inside at present, as far as it has not said that it leaves.
type Inside = Arc<Mutex<(u32, Option<Arc<MutexGuard>>)>>;

/// Racers, until it is over.
struct Race {
    inside: Inside,
    /// The number of times that each one has been inside.
    grants: Arc<[AtomicU32]>,
    over: Arc<AtomicBool>,
    racers: Vec<JoinHandle<()>>,
}

async fn race(servers: &Servers) -> Race {
    let (inside, grants, over) = (Inside::default(), Arc::<[AtomicU32; 4]>::default(), Arc::<AtomicBool>::default());
    let mut racers = Vec::new();
    for number in 0..grants.len() {
        let mutex = servers.hasty_client().await.mutex("race").with_ttl(ms(1500));
        let (inside, grants, over) = (inside.clone(), grants.clone(), over.clone());
        racers.push(tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
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
                grants[number].fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(ms(3)).await;
                // Out before the release.
                inside.lock().unwrap().1.take_if(|other| Arc::ptr_eq(other, &held));
                let held = Arc::into_inner(held).expect("nobody else has it");
                let _ = held.release().await;
            }
        }));
    }
    Race { inside, grants, over, racers }
}

impl Race {
    /// Waits until each has been inside more than so many times, and more than so many were seen there.
    async fn goes_on(&self, each: u32, seen: u32) {
        eventually("the race goes on", PROMPTLY * 3, async || {
            self.seen() > seen && self.grants.iter().all(|grants| grants.load(Ordering::Relaxed) > each)
        })
        .await;
    }

    /// The number of those who were seen inside so far.
    fn seen(&self) -> u32 {
        self.inside.lock().unwrap().0
    }

    async fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        for racer in self.racers {
            tokio::time::timeout(PROMPTLY, racer).await.expect("a racer ends").unwrap();
        }
        println!("grants: {:?}", self.grants);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn racers_never_overlap_and_none_is_left_out() {
    let Some(servers) = Servers::start().await else { return };
    let race = race(&servers).await;
    race.goes_on(10, 200).await;
    race.end().await;
    servers.have_nothing_left(ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn racers_never_overlap_while_servers_stall_in_turn() {
    let Some(servers) = Servers::start().await else { return };
    let race = race(&servers).await;
    // Two at a time, a majority now and then, shorter and longer than the lease.
    for (which, time) in [(&[0, 1][..], 900), (&[1, 2], 2500), (&[2, 3, 4], 400), (&[0, 3, 4], 1900), (&[4, 0], 1800)] {
        race.goes_on(0, race.seen() + 15).await;
        servers.stop(which);
        tokio::time::sleep(ms(time)).await;
        servers.cont(which);
    }
    race.goes_on(0, race.seen() + 15).await;
    race.end().await;
    servers.have_nothing_left(ALL).await;
}
