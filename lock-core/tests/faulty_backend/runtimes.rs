//! The runtime of a client's background work ends, stands still, or is hit by a panic of the backend.

use std::time::Duration;

use lock_core::memory::MemoryStore;
use lock_core::multi::lock_all;
use lock_core::{Client, LeaseOptions, LossReason};
use tokio::runtime::{Builder, Runtime};

use crate::lab::{Fault, Faulty, Lab, eventually};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The answer, or a failure after ten seconds.
pub(crate) async fn soon<T>(what: &str, answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), answer).await.unwrap_or_else(|_| panic!("not within 10 s: {what}"))
}

#[test]
fn a_loss_is_told_by_the_holders_clock_when_the_clients_runtime_has_ended() {
    let (home, here) = (runtime(), runtime());
    let store = MemoryStore::new();
    let locks = home.block_on(async { store.connect() });
    here.block_on(async {
        let lock = locks.mutex("a").with_ttl(Duration::from_millis(300));
        let (guard, other) = (lock.lock().await.unwrap(), locks.mutex("b").with_ttl(Duration::from_millis(300)));
        let other = other.lock().await.unwrap();
        store.set_reachable(false);
        home.shutdown_background();
        assert_eq!(soon("lost() resolves", guard.lost()).await, LossReason::Expired);
        let work = other.while_held(std::future::pending::<()>());
        assert_eq!(soon("the work is dropped", work).await.unwrap_err().error.loss(), Some(&LossReason::Expired));
    });
}

#[test]
fn a_loss_is_told_by_the_holders_clock_while_the_clients_runtime_stands_still() {
    let (home, here) = (runtime(), runtime());
    let locks = home.block_on(async { MemoryStore::new().connect() });
    let lock = locks.mutex("a").with_ttl(Duration::from_millis(300));
    let (lost, guard) = here.block_on(async {
        let guard = lock.lock().await.unwrap();
        (soon("lost() resolves", guard.lost()).await, guard)
    });
    assert_eq!(lost, LossReason::Expired);
    assert!(!guard.is_held());
    drop(home);
}

#[test]
fn a_lock_is_renewed_on_its_holders_runtime_when_the_clients_has_ended() {
    let (home, here) = (runtime(), runtime());
    let lab = Lab::new();
    let locks = home.block_on(async { lab.connect() });
    here.block_on(async {
        let guard = locks.mutex("a").lock().await.unwrap();
        home.shutdown_background();
        lab.pass(Duration::from_secs(30)).await;
        assert!(guard.is_held(), "not renewed");
        guard.release().await.unwrap();
        assert_eq!(lab.store.used(), 0);
    });
}

/// Ends a runtime outside of any other one.
fn end(runtime: Runtime) {
    std::thread::spawn(move || drop(runtime)).join().unwrap();
}

#[test]
fn a_loss_that_was_announced_before_the_clients_runtime_ended_is_told_on_the_holders() {
    let (home, here) = (runtime(), runtime());
    let lab = Lab::new();
    lab.line.announces_losses();
    let locks = home.block_on(async { lab.connect() });
    let guard = here.block_on(locks.mutex("a").lock()).unwrap();
    // Nobody takes the announcement up: the client's runtime is not driven.
    lab.store.lose("a");
    lab.clock.advance(Duration::from_millis(1));
    end(home);
    assert_eq!(here.block_on(soon("the loss is told", guard.lost())), LossReason::Taken);
}

#[test]
fn a_renewal_that_was_under_way_when_the_clients_runtime_ended_is_sent_again_at_once() {
    let (home, here) = (runtime(), runtime());
    let lab = Lab::new();
    let locks = home.block_on(async { lab.connect() });
    let guard = here.block_on(locks.mutex("a").lock()).unwrap();
    lab.line.set(Fault::Hangs);
    home.block_on(async {
        lab.clock.advance(LeaseOptions::default().renewal_interval());
        lab.line.asked_times("renew", 1).await;
    });
    lab.line.set(Fault::None);
    lab.clock.advance(Duration::from_millis(1));
    end(home);
    here.block_on(lab.line.asked_times("renew", 2));
    drop(guard);
}

#[test]
fn a_lock_is_renewed_on_the_runtime_on_which_its_holder_waits_for_the_loss() {
    let (home, here) = (runtime(), runtime());
    let lab = Lab::new();
    let (locks, guard) = home.block_on(async {
        let locks = lab.connect();
        let guard = locks.mutex("a").lock().await.unwrap();
        (locks, guard)
    });
    here.block_on(async {
        let _waits = tokio::spawn(guard.lost());
        lab.settle().await;
        end(home);
        lab.pass(Duration::from_secs(30)).await;
        assert!(guard.is_held(), "not renewed");
    });
    drop(locks);
}

#[test]
fn a_lock_is_renewed_on_its_holders_runtime_when_those_of_many_others_have_ended() {
    let (home, here) = (runtime(), runtime());
    let lab = Lab::new();
    let locks = home.block_on(async { lab.connect() });
    let taken = async |name: &str| locks.mutex(name).lock().await.unwrap();
    let others = ["b", "c", "d", "e", "f", "g", "h", "i"].map(|name| {
        let other = runtime();
        let guard = other.block_on(taken(name));
        end(other);
        guard
    });
    here.block_on(async {
        let guard = taken("a").await;
        end(home);
        lab.pass(Duration::from_secs(30)).await;
        assert!(guard.is_held(), "not renewed");
    });
    drop(others);
}

#[test]
fn a_lock_whose_holder_has_no_runtime_is_renewed_on_that_of_whoever_looks_at_it() {
    let (home, here) = (runtime(), runtime());
    let lab = Lab::new();
    let locks = home.block_on(async { lab.connect() });
    let guard = home.block_on(locks.mutex("a").lock()).unwrap();
    drop(home);
    here.block_on(async {
        assert!(guard.is_held());
        lab.pass(Duration::from_secs(30)).await;
        assert!(guard.is_held(), "not renewed");
    });
}

#[test]
fn a_loss_is_told_to_a_future_that_was_polled_on_a_runtime_that_has_ended() {
    let (first, second) = (runtime(), runtime());
    let locks = MemoryStore::new().connect();
    let guard = first.block_on(locks.mutex("a").with_ttl(Duration::from_millis(300)).lock()).unwrap();
    let mut lost = guard.lost();
    first.block_on(async { assert!(futures_util::poll!(&mut lost).is_pending()) });
    drop(first);
    second.block_on(soon("lost() resolves", lost));
}

#[test]
fn the_first_loss_of_several_is_told_on_the_runtime_on_which_it_is_waited_for_last() {
    let (first, second) = (runtime(), runtime());
    let locks = MemoryStore::new().connect();
    let lease = LeaseOptions::new(Duration::from_millis(300)).with_auto_renew(false);
    let mutexes = ["a", "b"].map(|name| locks.mutex(name).with_lease(lease));
    let both = first.block_on(lock_all(mutexes)).unwrap();
    let mut lost = both.lost();
    first.block_on(async { assert!(futures_util::poll!(&mut lost).is_pending()) });
    // The first one is there, and nobody drives it.
    second.block_on(soon("lost() resolves", lost));
    drop(first);
}

#[tokio::test]
async fn a_panic_in_a_renewal_costs_one_renewal() {
    let lab = Lab::new();
    let locks = lab.connect();
    let lease = LeaseOptions::new(Duration::from_secs(10));
    let guard = locks.mutex("a").with_lease(lease).lock().await.unwrap();
    lab.line.set(Fault::Panics);
    let asked = lab.line.asked("renew");
    while lab.line.asked("renew") == asked {
        lab.pass(Duration::from_millis(50)).await;
    }
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(30)).await;
    assert!(guard.is_held(), "nobody renews any more");
    lab.line.set(Fault::Panics);
    let lost = tokio::spawn(guard.lost());
    lab.pass(Duration::from_secs(11)).await;
    assert_eq!(soon("lost() resolves", lost).await.unwrap(), LossReason::Expired);
}

#[tokio::test]
async fn a_panic_in_a_release_leaves_the_others_alone() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guards = [locks.mutex("a").lock().await.unwrap(), locks.mutex("b").lock().await.unwrap()];
    lab.line.set(Fault::Panics);
    drop(guards);
    lab.line.asked_times("release", 2).await;
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(3)).await;
    eventually("both are released", || lab.store.used() == 0).await;
}
#[test]
fn what_was_to_be_released_is_released_on_another_runtime() {
    let (home, here) = (runtime(), runtime());
    let lab = Lab::new();
    let locks = home.block_on(async { lab.connect() });
    home.block_on(async {
        let guard = locks.mutex("a").lock().await.unwrap();
        lab.line.set(Fault::Down);
        drop(guard);
        lab.line.asked_times("release", 1).await;
    });
    here.block_on(async {
        let _held = locks.mutex("b").try_lock().await;
        home.shutdown_background();
        lab.line.set(Fault::None);
        let _held = locks.mutex("c").lock().await.unwrap();
        lab.pass(Duration::from_secs(3)).await;
        eventually("the first one is released", || lab.store.used() == 1).await;
    });
}

/// The client's mutex "a" was being released when its runtime ended.
fn client_whose_runtime_ended_in_a_release(lab: &Lab) -> Client<Faulty> {
    let home = runtime();
    home.block_on(async {
        let locks = lab.connect();
        let guard = locks.mutex("a").lock().await.unwrap();
        lab.line.set(Fault::Hangs);
        drop(guard);
        lab.line.asked_times("release", 1).await;
        lab.line.set(Fault::None);
        locks
    })
}

#[test]
fn a_try_has_what_was_being_released_when_its_runtime_ended_released_first() {
    let lab = Lab::new();
    let locks = client_whose_runtime_ended_in_a_release(&lab);
    runtime().block_on(async {
        assert!(soon("the try", locks.mutex("a").try_lock()).await.unwrap().is_some());
    });
}

#[test]
fn a_wait_has_what_was_being_released_when_its_runtime_ended_released_first() {
    let lab = Lab::new();
    let locks = client_whose_runtime_ended_in_a_release(&lab);
    runtime().block_on(async {
        let held = soon("the wait", locks.mutex("a").lock()).await.unwrap();
        held.release().await.unwrap();
    });
}

#[test]
fn what_was_being_released_when_its_runtime_ended_is_released_on_another_one() {
    let lab = Lab::new();
    let locks = client_whose_runtime_ended_in_a_release(&lab);
    runtime().block_on(async {
        let held = locks.mutex("b").lock().await.unwrap();
        lab.pass(Duration::from_secs(3)).await;
        eventually("the first one is released", || lab.store.used() == 1).await;
        held.release().await.unwrap();
        soon("nothing is under way", locks.close()).await.unwrap();
        drop(locks);
        let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        eventually("the tasks have ended", || alive() == 0).await;
    });
}
