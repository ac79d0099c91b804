//! Tasks of one owner at one reentrant lock, while the server is silent.

use std::time::Duration;

use lock_core::{Client, Error, ErrorKind, GrantId, LeaseOptions, Owner, ReentrantGuard, ReentrantMutex};
use tokio::task::JoinHandle;

use crate::lab::{Fault, Faulty, Lab};

type Outcome = JoinHandle<Result<Option<ReentrantGuard>, Error>>;

const SECOND: Duration = Duration::from_secs(1);

/// A reentrant lock, and an owner with many tasks.
pub(crate) struct Tree {
    pub(crate) locks: Client<Faulty>,
    pub(crate) me: Owner,
}

impl Tree {
    pub(crate) fn at(lab: &Lab) -> Self {
        Self { locks: lab.connect(), me: Owner::new() }
    }

    pub(crate) fn lock(&self) -> ReentrantMutex {
        self.locks.reentrant("tree")
    }

    fn spawn<F>(&self, call: impl FnOnce(ReentrantMutex, Owner) -> F) -> Outcome
    where
        F: Future<Output = Result<Option<ReentrantGuard>, Error>> + Send + 'static,
    {
        tokio::spawn(call(self.lock(), self.me.clone()))
    }

    pub(crate) fn locking(&self) -> Outcome {
        self.spawn(|lock, me| async move { lock.lock(&me).await.map(Some) })
    }

    pub(crate) fn trying_for(&self, wait: Duration) -> Outcome {
        self.spawn(move |lock, me| async move { lock.try_lock_for(&me, wait).await })
    }

    pub(crate) fn trying(&self) -> Outcome {
        self.spawn(|lock, me| async move { lock.try_lock(&me).await })
    }
}

async fn is_unavailable(outcome: Outcome) {
    assert!(outcome.is_finished(), "still waiting for a silent server");
    assert_eq!(outcome.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_nested_lock_that_finds_the_lease_lost_is_a_first_one() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    let outer = tree.lock().with_ttl(SECOND * 10).lock(&tree.me).await.unwrap();
    lab.store.lose("tree");
    let inner = tree.lock().with_ttl(SECOND * 60).lock(&tree.me).await.unwrap();
    assert!(inner.is_held() && !outer.is_held(), "{inner:?} in {outer:?}");
    assert_eq!((inner.depth(), lab.store.used()), (1, 1));
    inner.release().await.unwrap();
}

#[tokio::test]
async fn tasks_at_the_gate_share_one_patience() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    lab.line.set(Fault::Silent);
    let tasks = [tree.locking(), tree.locking(), tree.locking(), tree.locking(), tree.locking()];
    lab.pass(SECOND * 9).await;
    assert!(tasks.iter().all(|task| !task.is_finished()), "a task lost its patience too early");
    lab.pass(SECOND * 2).await;
    for task in tasks {
        is_unavailable(task).await;
    }
    assert_eq!(lab.line.asked("enter"), 1);
}

/// The backend has asked all the time, so the end of its wait is unknown.
#[tokio::test]
async fn tasks_at_the_gate_share_one_patience_also_where_each_request_of_a_wait_may_have_been_carried_out() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    lab.line.polls();
    lab.line.set(Fault::Hangs);
    let tasks = [tree.locking(), tree.locking(), tree.locking(), tree.locking(), tree.locking()];
    lab.pass(SECOND * 9).await;
    assert!(tasks.iter().all(|task| !task.is_finished()), "a task lost its patience too early");
    lab.pass(SECOND * 5).await;
    for task in tasks {
        assert!(task.is_finished(), "still waiting for a silent server");
        assert!(task.await.unwrap().is_err());
    }
}

#[tokio::test]
async fn a_task_that_came_later_has_its_own_patience_and_no_more() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    lab.line.set(Fault::Silent);
    let first = tree.locking();
    lab.pass(SECOND * 5).await;
    let later = [tree.locking(), tree.locking()];
    lab.pass(SECOND * 6).await;
    is_unavailable(first).await;
    assert!(later.iter().all(|task| !task.is_finished()), "a task lost its patience too early");
    lab.pass(SECOND * 5).await;
    for task in later {
        is_unavailable(task).await;
    }
}

#[tokio::test]
async fn a_patient_task_outlives_the_failure_of_an_impatient_one() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    lab.line.set(Fault::Silent);
    let impatient = tree.trying_for(SECOND);
    lab.line.asked_times("enter", 1).await;
    let patient = tree.locking();
    lab.pass(SECOND * 2).await;
    lab.line.set(Fault::None);
    lab.pass(SECOND * 2).await;
    is_unavailable(impatient).await;
    let guard = patient.await.unwrap().unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn time_in_which_the_server_answered_costs_no_patience() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    let held = lab.store.connect().reentrant("tree").lock(&Owner::new()).await.unwrap();
    let limited = tree.trying_for(SECOND * 20);
    lab.line.asked_times("enter", 1).await;
    let patient = tree.locking();
    lab.pass(SECOND * 19).await;
    lab.line.set(Fault::Silent);
    // Silent for two seconds when the limited wait fails: eight are left.
    lab.pass(SECOND * 4).await;
    is_unavailable(limited).await;
    lab.pass(SECOND * 6).await;
    assert!(!patient.is_finished(), "a task lost its patience too early");
    lab.pass(SECOND * 2).await;
    is_unavailable(patient).await;
    drop(held);
}

#[tokio::test]
async fn a_deadline_at_the_gate_of_a_silent_server_is_no_refusal() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    lab.line.set(Fault::Silent);
    let _asks = tree.locking();
    lab.line.asked_times("enter", 1).await;
    let limited = tree.trying_for(SECOND);
    let tries = tree.trying();
    lab.pass(SECOND * 2 + SECOND / 10).await;
    is_unavailable(tries).await;
    lab.pass(SECOND).await;
    is_unavailable(limited).await;
}

#[tokio::test]
async fn a_deadline_at_the_gate_of_a_held_lock_is_a_refusal() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    let other = lab.store.connect().reentrant("tree");
    let held = other.lock(&Owner::new()).await.unwrap();
    let waits = tree.locking();
    lab.line.asked_times("enter", 1).await;
    let limited = tree.trying_for(SECOND);
    let tries = tree.trying();
    lab.pass(SECOND + SECOND / 10).await;
    for refused in [limited, tries] {
        assert!(refused.is_finished(), "still waiting for a lock that is held");
        assert!(refused.await.unwrap().unwrap().is_none());
    }
    held.release().await.unwrap();
    lab.pass(SECOND / 10).await;
    assert_eq!(waits.await.unwrap().unwrap().unwrap().depth(), 1);
}

#[tokio::test]
async fn a_task_whose_request_is_lost_enters_with_the_one_that_asked_for_itself() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    lab.line.set(Fault::Silent);
    let lost = tree.locking();
    lab.line.asked_times("enter", 1).await;
    lab.line.set(Fault::None);
    let mine = tree.trying().await.unwrap().unwrap().expect("nobody holds the lock");
    let theirs = lost.await.unwrap().unwrap().unwrap();
    assert_eq!((mine.depth(), mine.grant_id()), (2, theirs.grant_id()));
    theirs.release().await.unwrap();
    mine.release().await.unwrap();
    tree.locks.close().await.unwrap();
    assert_eq!(lab.store.used(), 0);
}

#[tokio::test]
async fn the_strongest_wish_of_all_levels_rules_the_lease() {
    let lab = Lab::new();
    let locks = lab.connect();
    let (tree, me) = (locks.reentrant("tree"), Owner::new());
    let outer = tree.clone().with_lease(LeaseOptions::new(Duration::from_secs(10)).with_auto_renew(false));
    let outer = outer.lock(&me).await.unwrap();
    let inner = tree.clone().with_ttl(Duration::from_secs(12)).lock(&me).await.unwrap();
    lab.pass(Duration::from_secs(30)).await;
    assert!(outer.is_held() && inner.is_held(), "the inner level asked for renewal");
    assert!(outer.remaining() > Duration::from_secs(7), "renewed for the shorter TTL: {:?}", outer.remaining());
    drop((outer, inner));
}

#[tokio::test]
async fn a_nested_lock_that_lengthens_the_lease_keeps_its_deadline() {
    let lab = Lab::new();
    let locks = lab.connect();
    let (tree, me) = (locks.reentrant("tree"), Owner::new());
    let outer = tree.lock(&me).await.unwrap();
    lab.line.set(Fault::Silent);
    let nested = tree.clone().with_ttl(Duration::from_secs(60));
    let nested = tokio::spawn(async move { nested.try_lock_for(&me, Duration::from_millis(100)).await });
    lab.line.asked_times("renew", 1).await;
    lab.pass(Duration::from_millis(150)).await;
    let inner = tokio::time::timeout(Duration::from_secs(10), nested).await.expect("in time").unwrap();
    assert_eq!(inner.unwrap().unwrap().depth(), 2);
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(8)).await;
    assert!(outer.remaining() > Duration::from_secs(20), "not lengthened later: {:?}", outer.remaining());
}

#[tokio::test]
async fn a_nested_lock_lengthens_the_lease_at_once_and_only_where_it_is_too_short() {
    let lab = Lab::new();
    let locks = lab.connect();
    let me = Owner::new();
    let tree = |seconds| {
        let lease = LeaseOptions::new(Duration::from_secs(seconds)).with_auto_renew(false);
        locks.reentrant("tree").with_lease(lease)
    };
    let outer = tree(10).lock(&me).await.unwrap();
    lab.pass(Duration::from_secs(6)).await;
    let same = tree(10).lock(&me).await.unwrap();
    let shorter = tree(9).lock(&me).await.unwrap();
    assert_eq!(lab.line.asked("renew"), 0, "no level wants more than the lease was granted for");
    let longer = tree(60).lock(&me).await.unwrap();
    assert_eq!(lab.line.asked("renew"), 1);
    assert!(outer.remaining() > Duration::from_secs(59), "{:?}", outer.remaining());
    let again = tree(60).lock(&me).await.unwrap();
    assert_eq!((again.depth(), lab.line.asked("renew")), (5, 1), "more than half of it is left");
    drop((outer, same, shorter, longer, again));
}

#[tokio::test]
async fn a_lease_that_nobody_renews_lasts_for_the_longest_ttl_of_its_levels() {
    let lab = Lab::new();
    let locks = lab.connect();
    let me = Owner::new();
    let tree = |seconds| {
        let lease = LeaseOptions::new(Duration::from_secs(seconds)).with_auto_renew(false);
        locks.reentrant("tree").with_lease(lease)
    };
    let outer = tree(10).lock(&me).await.unwrap();
    let inner = tree(15).lock(&me).await.unwrap();
    assert!(outer.remaining() > Duration::from_secs(14), "{:?}", outer.remaining());
    let again = tree(15).lock(&me).await.unwrap();
    assert_eq!(lab.line.asked("renew"), 1, "a level before has asked for as much");
    outer.extend(Duration::from_secs(60)).await.unwrap();
    let shorter = tree(30).lock(&me).await.unwrap();
    assert_eq!(lab.line.asked("renew"), 2, "more than that is left");
    drop((outer, inner, again, shorter));
}

#[tokio::test]
async fn a_try_waits_for_the_try_of_another_task_of_its_owner() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    lab.line.set(Fault::KeepsAnswers);
    let first = tree.trying();
    lab.line.asked_times("try_enter", 1).await;
    let second = tree.trying();
    lab.settle().await;
    lab.line.set(Fault::None);
    lab.pass(SECOND / 10).await;
    let (first, second) = (first.await.unwrap().unwrap().unwrap(), second.await.unwrap().unwrap().unwrap());
    assert_eq!((first.depth(), second.depth(), lab.line.asked("try_enter")), (2, 2, 1));
}

#[tokio::test]
async fn an_operator_sees_the_holder_and_frees_it() {
    let lab = Lab::new();
    let locks = lab.connect();
    let (tree, me) = (locks.reentrant("tree"), Owner::new());
    let guard = tree.lock(&me).await.unwrap();
    assert_eq!(tree.inspect().await.unwrap().holders[0].owner.as_ref(), Some(&me));
    assert!(!tree.force_release(GrantId::random().unwrap(), "another one").await.unwrap());
    assert!(tree.force_release(guard.grant_id(), "the test").await.unwrap());
    assert!(tree.inspect().await.unwrap().is_free());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::NotHeld);
}

#[tokio::test]
async fn nobody_gets_inside_where_no_level_is_allowed() {
    let locks = Lab::new().connect();
    let error = locks.reentrant("tree").with_max_depth(0).lock(&Owner::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

#[tokio::test]
async fn only_the_last_of_three_levels_releases_the_lock() {
    let lab = Lab::new();
    let locks = lab.connect();
    let (tree, me) = (locks.reentrant("tree").with_max_depth(3), Owner::new());
    let mut levels = Vec::new();
    for depth in 1..=3 {
        levels.push(tree.lock(&me).await.unwrap());
        assert_eq!(levels[0].depth(), depth);
    }
    assert_eq!(tree.lock(&me).await.unwrap_err().kind(), ErrorKind::InvalidArgument, "deeper than allowed");
    for (left, level) in [2, 1, 0].into_iter().zip(levels) {
        assert_eq!(lab.line.asked("release"), 0, "released too early");
        level.release().await.unwrap();
        assert_eq!(lab.store.used(), usize::from(left > 0), "{left} levels are left");
    }
    assert_eq!((lab.line.asked("enter"), lab.line.asked("release")), (1, 1));
}

#[tokio::test]
async fn a_level_of_a_lost_lease_is_no_level_of_the_next_one() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    let lost = tree.lock().lock(&tree.me).await.unwrap();
    lab.line.set(Fault::Down);
    lab.pass(40 * SECOND).await;
    lab.line.set(Fault::None);
    let next = tree.lock().lock(&tree.me).await.unwrap();
    assert_eq!((lost.is_held(), lost.depth(), next.depth()), (false, 0, 1));
    assert!(lost.fencing_token() < next.fencing_token(), "{:?}, then {:?}", lost.fencing_token(), next.fencing_token());
}

#[tokio::test]
async fn a_dropped_level_is_released_and_the_last_one_releases_the_lock() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    let outer = tree.lock().lock(&tree.me).await.unwrap();
    drop(tree.lock().lock(&tree.me).await.unwrap());
    assert_eq!(outer.depth(), 1);
    drop(outer);
    lab.settle().await;
    assert!(tree.lock().try_lock(&Owner::new()).await.unwrap().is_some(), "still locked");
}

#[tokio::test]
async fn a_nested_lock_whose_ttl_the_server_does_not_allow_is_refused_and_the_outer_one_lives_on() {
    let lab = Lab::new();
    lab.line.allows_ttls_up_to(SECOND * 20);
    let tree = Tree::at(&lab);
    let outer = tree.lock().with_ttl(SECOND * 15).lock(&tree.me).await.unwrap();
    let nested = tree.lock().with_ttl(SECOND * 30);
    for error in [nested.try_lock(&tree.me).await.unwrap_err(), nested.lock(&tree.me).await.unwrap_err()] {
        assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidArgument, Some("tree")), "{error}");
        assert!(error.to_string().contains("30s") && error.to_string().contains("20s"), "{error}");
    }
    assert_eq!((outer.depth(), lab.line.asked("renew")), (1, 0));
    lab.pass(SECOND * 60).await;
    assert!(outer.is_held(), "it is not renewed any more");
    let inner = tree.lock().with_ttl(SECOND * 20).lock(&tree.me).await.unwrap();
    lab.pass(SECOND * 60).await;
    assert!(outer.is_held() && inner.is_held(), "what is allowed is not renewed");
}

#[tokio::test]
async fn a_nested_lock_with_impossible_options_is_refused_and_the_outer_one_lives_on() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    let outer = tree.lock().lock(&tree.me).await.unwrap();
    for impossible in [
        LeaseOptions::new(Duration::ZERO),
        LeaseOptions::new(LeaseOptions::MAX_TTL * 2),
        LeaseOptions::default().with_renew_every(Duration::ZERO),
        LeaseOptions::default().with_max_hold(Duration::ZERO),
    ] {
        let nested = tree.lock().with_lease(impossible);
        let error = nested.try_lock(&tree.me).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{impossible:?}: {error}");
        assert_eq!(outer.depth(), 1, "{impossible:?}");
    }
    lab.pass(SECOND * 60).await;
    assert!(outer.is_held());
}

#[tokio::test]
async fn a_try_does_not_wait_behind_a_task_that_begins_to_wait_before_it() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    let held = lab.store.connect().reentrant("tree").lock(&Owner::new()).await.unwrap();
    lab.line.set(Fault::KeepsAnswers);
    let first = tree.trying();
    lab.line.asked_times("try_enter", 1).await;
    let (waiting, second) = (tree.locking(), tree.trying());
    lab.settle().await;
    lab.line.set(Fault::None);
    // The first try is answered, and the task that waits has its turn.
    lab.pass(Duration::from_millis(50)).await;
    lab.line.asked_times("enter", 1).await;
    lab.line.asked_times("try_enter", 2).await;
    assert!(first.await.unwrap().unwrap().is_none());
    assert!(second.await.unwrap().unwrap().is_none());
    assert!(!waiting.is_finished());
    drop(held);
    lab.settle().await;
    assert!(waiting.await.unwrap().unwrap().is_some());
}

#[tokio::test]
async fn tasks_of_one_owner_ask_once_however_long_they_wait() {
    let lab = Lab::new();
    let tree = Tree::at(&lab);
    let held = lab.store.connect().reentrant("tree").lock(&Owner::new()).await.unwrap();
    let waiting = [tree.locking(), tree.locking(), tree.trying_for(SECOND * 60)];
    for _ in 0..40 {
        lab.pass(Duration::from_millis(500)).await;
    }
    assert_eq!(lab.line.asked("enter"), 1);
    drop(held);
    lab.settle().await;
    for waiting in waiting {
        drop(waiting.await.unwrap().unwrap().unwrap());
    }
}
