//! Runtimes that are there, and that nobody drives: what is spawned on them does not run.

use std::time::Duration;

use lock_core::Client;
use tokio::runtime::{Handle, Runtime};

use crate::lab::{Faulty, Lab, eventually};
use crate::runtimes::{end, runtime};

/// Some renewals of a lease of ten seconds.
const LONG: Duration = Duration::from_secs(90);

/// A client of one runtime, and another runtime for its holders.
struct Scene {
    home: Runtime,
    here: Runtime,
    lab: Lab,
    locks: Client<Faulty>,
}

impl Scene {
    fn new() -> Self {
        let (home, here) = (runtime(), runtime());
        let lab = Lab::new();
        let locks = home.block_on(async { lab.connect() });
        Self { home, here, lab, locks }
    }
}

#[test]
fn a_lock_is_renewed_on_its_holders_runtime_when_the_clients_has_ended_and_nobody_drives_many_others() {
    let Scene { home, here, lab, locks } = Scene::new();
    let taken = async |name: &str| locks.mutex(name).lock().await.unwrap();
    let others = ["b", "c", "d", "e", "f", "g", "h", "i"].map(|name| {
        let other = runtime();
        let guard = other.block_on(taken(name));
        (other, guard)
    });
    here.block_on(async {
        let guard = taken("a").await;
        let _waits = tokio::spawn(guard.lost());
        lab.settle().await;
        end(home);
        lab.pass(LONG).await;
        assert!(guard.is_held(), "not renewed");
    });
    drop(others);
}

#[test]
fn a_lock_is_renewed_on_its_holders_runtime_while_nobody_drives_the_clients() {
    let Scene { home, here, lab, locks } = Scene::new();
    here.block_on(async {
        let guard = locks.mutex("a").lock().await.unwrap();
        let _waits = tokio::spawn(guard.lost());
        lab.pass(LONG).await;
        assert!(guard.is_held(), "not renewed");
        guard.release().await.unwrap();
        assert_eq!(lab.store.used(), 0);
    });
    drop(home);
}

#[test]
fn a_lock_is_renewed_on_the_runtime_of_whoever_asks_whether_it_is_held() {
    let Scene { home, here, lab, locks } = Scene::new();
    here.block_on(async {
        let guard = locks.mutex("a").lock().await.unwrap();
        for _ in 0..LONG.as_secs() {
            lab.pass(Duration::from_secs(1)).await;
            assert!(guard.is_held(), "not renewed");
        }
    });
    drop(home);
}

#[test]
fn a_dropped_lock_is_released_on_the_runtime_on_which_another_one_is_renewed() {
    let Scene { home, here, lab, locks } = Scene::new();
    here.block_on(async {
        let guard = locks.mutex("a").lock().await.unwrap();
        let _waits = tokio::spawn(guard.lost());
        drop(locks.mutex("b").lock().await.unwrap());
        lab.pass(LONG).await;
        assert_eq!(lab.line.asked("release"), 1, "not released");
    });
    drop(home);
}

#[test]
fn a_task_that_stood_still_ends_when_its_runtime_is_driven_again() {
    let Scene { home, here, lab, locks } = Scene::new();
    let guard = here.block_on(async {
        let guard = locks.mutex("a").lock().await.unwrap();
        let _waits = tokio::spawn(guard.lost());
        lab.pass(LONG).await;
        guard
    });
    home.block_on(async {
        let alive = || Handle::current().metrics().num_alive_tasks();
        eventually("the former tasks have ended", || alive() == 0).await;
    });
    here.block_on(async {
        lab.pass(LONG).await;
        assert!(guard.is_held(), "its successor has ended too");
    });
}

#[test]
fn a_lock_that_is_taken_after_the_keeper_went_on_elsewhere_wakes_it_there() {
    let (home, here) = (runtime(), runtime());
    let lab = Lab::new();
    // The task waits for a wake-up when its runtime is left alone.
    let (locks, at_home) = home.block_on(async {
        let locks = lab.connect();
        let guard = locks.mutex("a").lock().await.unwrap();
        lab.settle().await;
        (locks, guard)
    });
    here.block_on(async {
        let _waits = tokio::spawn(at_home.lost());
        lab.pass(Duration::from_secs(6)).await;
        let short = locks.mutex("b").with_ttl(Duration::from_millis(300)).lock().await.unwrap();
        lab.pass(Duration::from_secs(1)).await;
        assert!(short.is_held(), "not renewed");
    });
    drop(home);
}
