//! A server whose wall clock is stepped while locks are held and waited for: what becomes of the queue and of the dead. (What
//! becomes of holders and of locks that are contended for is in the suite: C-F15, C-F15b.)
//!
//! Redis expires by that clock. A step forward ends leases that are running: that much is promised to nobody, and fencing
//! tokens are what saves the resource. A step back must not cost anything but the time for which a dead holder's lock
//! lives longer.

use std::time::{Duration, Instant};

use lock_redis::{Inspection, LossReason};
use lock_testkit::faults::{ClockFault, Injected};
use lock_testkit_servers::WallClock;
use lock_testkit_servers::redis::RedisOptions;

use crate::queue::QueuedTasks;
use crate::server::{HAND_OVER, PROMPTLY, SLACK, Server, about_time, installed, long, ms, obtain, short, soon};

const FORWARD: ClockFault = ClockFault::ahead_by_ms(30_000);
const BACK: ClockFault = ClockFault::ahead_by_ms(-60_000);

/// A server, and the clock that it goes by. `None`, loudly, where there is none.
async fn server_with_clock() -> Option<(Server, WallClock)> {
    let clock = installed(WallClock::new())?;
    Some((Server::start_with(&RedisOptions::new().with_clock(&clock)).await?, clock))
}

/// Steps the clock, and sees that the server noticed.
async fn step(clock: &WallClock, fault: ClockFault) -> Injected<'static> {
    let stepped = clock.inject(fault).unwrap();
    stepped.applied(PROMPTLY).await.unwrap();
    stepped
}

#[test]
fn who_waits_while_the_clock_is_put_back_keeps_the_order_and_the_holder_its_lock() {
    about_time(async || {
        let Some((server, clock)) = server_with_clock().await else { return };
        let (holder, a, b) = (server.client().await, server.client().await, server.client().await);
        let held = holder.mutex("clock").with_lease(short()).lock().await.unwrap();
        let queue = QueuedTasks::up(&server, &[&a, &b], "clock", 4).await;
        let _stepped = step(&clock, BACK).await;
        // For longer than a lease and than a waiter's liveness.
        let lost = tokio::time::timeout(ms(4000), held.lost()).await;
        assert!(lost.is_err() && held.is_held(), "lost by a step back: {lost:?}");
        assert_eq!(server.queued("clock").await, 4);
        held.release().await.unwrap();
        assert_eq!(queue.order(HAND_OVER * 4 + SLACK).await, [0, 1, 2, 3]);
        server.is_as_new(&a, "clock").await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_while_the_clock_is_put_forward_is_granted_and_the_holder_is_told() {
    let Some((server, clock)) = server_with_clock().await else { return };
    let (holder, a, b) = (server.client().await, server.client().await, server.client().await);
    let held = holder.mutex("clock").with_ttl(ms(9000)).lock().await.unwrap();
    let queue = QueuedTasks::up(&server, &[&a, &b], "clock", 4).await;
    let _stepped = step(&clock, FORWARD).await;
    let reason = soon("the holder is told at its next renewal", ms(3000) + SLACK, held.lost()).await;
    assert_eq!(reason, LossReason::Taken);
    let mut order = queue.order(HAND_OVER * 4 + ms(5000) + SLACK).await;
    order.sort_unstable();
    assert_eq!(order, [0, 1, 2, 3]);
    server.is_as_new(&a, "clock").await;
}

/// Checks whose lease it is: the only one that is shown, with no more than it may have.
fn only(inspection: Inspection, ttl: Duration) {
    let [holder] = &inspection.holders[..] else { panic!("{inspection:?}") };
    assert!(holder.expires_in.unwrap() <= ttl, "{holder:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_holder_s_lock_lives_longer_by_a_step_back_and_an_operator_can_end_it() {
    let Some((server, clock)) = server_with_clock().await else { return };
    let locks = server.client().await;
    let held = locks.mutex("clock").with_lease(long()).lock().await.unwrap();
    let grant = held.grant_id();
    std::mem::forget(held);
    let _stepped = step(&clock, BACK).await;
    let other = server.client().await;
    let waiting = tokio::spawn(obtain(&other, "clock", PROMPTLY));
    server.until_queued("clock", 1).await;
    let began = Instant::now();
    assert!(other.mutex("clock").force_release(grant, "its client is dead").await.unwrap());
    let next = soon("the waiter is granted", HAND_OVER + SLACK, waiting).await.unwrap();
    assert!(began.elapsed() < HAND_OVER + SLACK);
    only(locks.mutex("clock").inspect().await.unwrap(), ms(10_000));
    next.release().await.unwrap();
    server.is_as_new(&locks, "clock").await;
}
