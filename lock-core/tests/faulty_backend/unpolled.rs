//! Waits for a reentrant lock that are kept without being polled, and the other tasks of their owner.

use std::time::Duration;

use lock_core::{ErrorKind, Owner};

use crate::lab::Lab;
use crate::reentrant::Tree;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_wait_that_is_not_polled_keeps_no_other_task_of_its_owner_from_a_free_lock() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    let held = lab.store.connect().reentrant("tree").lock(&Owner::new()).await.unwrap();
    let lock = tree.lock();
    let (mut has_the_turn, mut waits_for_it) = (Box::pin(lock.lock(&tree.me)), Box::pin(lock.lock(&tree.me)));
    assert!(futures_util::poll!(&mut has_the_turn).is_pending() && futures_util::poll!(&mut waits_for_it).is_pending());
    let polled = tree.locking();
    held.release().await.unwrap();
    lab.settle().await;
    assert!(!polled.is_finished(), "it does not know yet that the turn is not used");
    // An operation timeout and a second.
    lab.pass(Duration::from_millis(3_100)).await;
    assert!(polled.is_finished());
    let guard = polled.await.unwrap().unwrap().unwrap();
    // Both are inside when they are polled after all.
    let others = [has_the_turn.await.unwrap(), waits_for_it.await.unwrap()];
    for guard in others.into_iter().chain([guard]) {
        guard.release().await.unwrap();
    }
    tree.locks.close().await.unwrap();
    assert_eq!(lab.store.used(), 0);
}

#[tokio::test]
async fn whoever_waits_at_the_gate_enters_with_a_task_that_passed_one_that_is_not_polled() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    let held = lab.store.connect().reentrant("tree").lock(&Owner::new()).await.unwrap();
    let lock = tree.lock();
    let mut has_the_turn = Box::pin(lock.lock(&tree.me));
    assert!(futures_util::poll!(&mut has_the_turn).is_pending());
    let early = tree.locking();
    held.release().await.unwrap();
    lab.settle().await;
    assert!(!early.is_finished());
    // It asks for itself, as the one that has the turn waits.
    let tried = tree.trying();
    lab.settle().await;
    for outcome in [tried, early] {
        assert!(outcome.is_finished(), "the owner is inside");
        outcome.await.unwrap().unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_try_does_not_wait_for_a_task_that_waits_although_another_one_has_given_up() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    let _held = lab.store.connect().reentrant("tree").lock(&Owner::new()).await.unwrap();
    let lock = tree.lock();
    let mut waiting = Box::pin(lock.lock(&tree.me));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    let gives_up = tree.trying_for(SECOND * 5);
    // It asks for itself meanwhile: the one that waits is not polled.
    for _ in 0..11 {
        lab.pass(Duration::from_millis(500)).await;
    }
    assert!(gives_up.await.unwrap().unwrap().is_none());
    assert!(futures_util::poll!(&mut waiting).is_pending());
    let tries = tree.trying();
    lab.settle().await;
    assert!(tries.is_finished(), "it waits for one that waits");
    assert!(tries.await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn a_wait_behind_one_that_is_not_polled_ends_when_the_client_is_closed() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    let _held = lab.store.connect().reentrant("tree").lock(&Owner::new()).await.unwrap();
    let lock = tree.lock();
    let mut left = Box::pin(lock.lock(&tree.me));
    assert!(futures_util::poll!(&mut left).is_pending());
    let polled = tree.locking();
    lab.settle().await;
    let closing = tokio::spawn({
        let locks = tree.locks.clone();
        async move { locks.close().await }
    });
    lab.settle().await;
    assert!(polled.is_finished());
    assert_eq!(polled.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    drop(left);
    lab.settle().await;
    closing.await.unwrap().unwrap();
}
