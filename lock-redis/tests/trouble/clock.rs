//! A server whose wall clock is stepped while locks are held and waited for (C-F15, C-S11).
//!
//! Redis expires by that clock. A step forward ends leases that are running: that much is promised to nobody, and fencing
//! tokens are what saves the resource. A step back must not cost anything but the time for which a dead holder's lock
//! lives longer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, join_all};
use lock_redis::fence::FenceGate;
use lock_redis::{FencingToken, Inspection, Lease, LossReason, RedisLocks};
use lock_testkit::faults::{ClockFault, Injected};
use lock_testkit::servers::WallClock;
use lock_testkit::servers::redis::RedisOptions;

use crate::line::Line;
use crate::server::{
    HAND_OVER, PROMPTLY, SLACK, Server, about_time, eventually, installed, long, ms, obtain, short, soon,
};

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

/// A room with so many places, and a counter in it behind a gate, which is read and written in two steps.
#[derive(Debug, Default)]
struct Room {
    places: usize,
    /// From when to when somebody was inside and believed in his lock all the time.
    turns: Mutex<Vec<(Instant, Instant)>>,
    gate: FenceGate,
    counter: AtomicU64,
    /// Writes that the gate has admitted.
    written: AtomicU64,
    done: AtomicBool,
}

impl Room {
    fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { places, ..Self::default() })
    }

    /// One turn inside, which lasts some milliseconds.
    async fn turn(&self, lease: &Lease, token: Option<FencingToken>) {
        let began = Instant::now();
        self.count(token).await;
        let ended = Instant::now();
        if lease.is_held() {
            self.turns.lock().unwrap().push((began, ended));
        }
    }

    /// Adds one, if the gate admits both steps.
    async fn count(&self, token: Option<FencingToken>) {
        let admitted = || token.is_some_and(|token| self.gate.admit_exclusive(token).is_ok());
        let read = admitted().then(|| self.counter.load(Ordering::SeqCst));
        tokio::time::sleep(ms(5)).await;
        if let Some(value) = read.filter(|_| admitted()) {
            self.counter.store(value + 1, Ordering::SeqCst);
            self.written.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn lost_updates(&self) -> u64 {
        self.written.load(Ordering::SeqCst) - self.counter.load(Ordering::SeqCst)
    }

    /// How many came in since then although all places were taken by others who had come in since then, and believed in
    /// their locks.
    fn overlaps(&self, since: Instant) -> usize {
        let turns = self.turns.lock().unwrap();
        let turns: Vec<_> = turns.iter().filter(|(began, _)| *began >= since).collect();
        let is_inside = |at: Instant| move |(began, ended): &&&(Instant, Instant)| *began <= at && at < *ended;
        turns.iter().filter(|(began, _)| turns.iter().filter(is_inside(*began)).count() > self.places).count()
    }

    /// Waits until there were so many turns more.
    async fn goes_on(&self, turns: usize) {
        let wanted = self.turns.lock().unwrap().len() + turns;
        let enough = async || (self.turns.lock().unwrap().len() >= wanted).then_some(());
        eventually("there are more turns", PROMPTLY, enough).await;
    }
}

type Turn = fn(RedisLocks, Arc<Room>) -> BoxFuture<'static, ()>;

/// One turn with each kind of lock. What is lost meanwhile is no failure here.
const KINDS: [(&str, usize, Turn); 3] = [
    ("mutex", 1, |locks, room| {
        Box::pin(async move {
            let held = locks.mutex("clock").with_lease(short()).lock().await.unwrap();
            room.turn(&held, held.fencing_token()).await;
            let _ = held.release().await;
        })
    }),
    ("write", 1, |locks, room| {
        Box::pin(async move {
            let held = locks.rwlock("clock").with_lease(short()).write().await.unwrap();
            room.turn(&held, held.fencing_token()).await;
            let _ = held.release().await;
        })
    }),
    ("permits", 2, |locks, room| {
        Box::pin(async move {
            let held = locks.semaphore("clock", 2).with_lease(short()).acquire().await.unwrap();
            room.turn(&held, None).await;
            let _ = held.release().await;
        })
    }),
];

/// Six contenders in three clients take turns until the room is done.
async fn contend(server: &Server, room: &Arc<Room>, turn: Turn) -> Vec<tokio::task::JoinHandle<()>> {
    let mut contenders = Vec::new();
    for _ in 0..3 {
        let locks = server.client().await;
        for _ in 0..2 {
            let (locks, room) = (locks.clone(), room.clone());
            contenders.push(tokio::spawn(async move {
                while !room.done.load(Ordering::SeqCst) {
                    turn(locks.clone(), room.clone()).await;
                }
            }));
        }
    }
    contenders
}

/// What contenders did while the clock was stepped.
struct Contention {
    rooms: Vec<(&'static str, Arc<Room>)>,
    began: Instant,
    /// When everybody had left who could be inside at the step, or about to come in.
    settled: Instant,
}

/// All kinds are contended for while the clock is stepped; everybody gets turns afterwards.
async fn under_contention(fault: ClockFault) -> Option<Contention> {
    let began = Instant::now();
    let (server, clock) = server_with_clock().await?;
    let mut rooms = Vec::new();
    let mut contenders = Vec::new();
    for (kind, places, turn) in KINDS {
        let room = Room::new(places);
        contenders.extend(contend(&server, &room, turn).await);
        rooms.push((kind, room));
    }
    join_all(rooms.iter().map(|(_, room)| room.goes_on(50))).await;
    let stepped = step(&clock, fault).await;
    join_all(rooms.iter().map(|(_, room)| room.goes_on(50))).await;
    let settled = Instant::now();
    join_all(rooms.iter().map(|(_, room)| room.goes_on(100))).await;
    rooms.iter().for_each(|(_, room)| room.done.store(true, Ordering::SeqCst));
    soon("all of them come to their end", PROMPTLY, join_all(contenders)).await.into_iter().for_each(Result::unwrap);
    server.has_nothing_left().await;
    stepped.heal().unwrap();
    Some(Contention { rooms, began, settled })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_put_back_under_contention_lets_no_two_in_and_nobody_is_stuck() {
    let Some(contention) = under_contention(BACK).await else { return };
    for (kind, room) in contention.rooms {
        assert_eq!((room.overlaps(contention.began), room.lost_updates()), (0, 0), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_put_forward_under_contention_costs_no_fenced_update_and_nobody_is_stuck() {
    let Some(contention) = under_contention(FORWARD).await else { return };
    for (kind, room) in contention.rooms {
        // Who was inside when the clock was stepped may meet those whom the server let in meanwhile, and nobody later.
        assert_eq!((room.overlaps(contention.settled), room.lost_updates()), (0, 0), "{kind}");
    }
}

#[test]
fn who_waits_while_the_clock_is_put_back_keeps_the_order_and_the_holder_its_lock() {
    about_time(async || {
        let Some((server, clock)) = server_with_clock().await else { return };
        let (holder, a, b) = (server.client().await, server.client().await, server.client().await);
        let held = holder.mutex("clock").with_lease(short()).lock().await.unwrap();
        let line = Line::up(&server, &[&a, &b], "clock", 4).await;
        let _stepped = step(&clock, BACK).await;
        // For longer than a lease and than a waiter's liveness.
        let lost = tokio::time::timeout(ms(4000), held.lost()).await;
        assert!(lost.is_err() && held.is_held(), "lost by a step back: {lost:?}");
        assert_eq!(server.queued("clock").await, 4);
        held.release().await.unwrap();
        assert_eq!(line.order(HAND_OVER * 4 + SLACK).await, [0, 1, 2, 3]);
        server.is_as_new(&a, "clock").await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_while_the_clock_is_put_forward_is_granted_and_the_holder_is_told() {
    let Some((server, clock)) = server_with_clock().await else { return };
    let (holder, a, b) = (server.client().await, server.client().await, server.client().await);
    let held = holder.mutex("clock").with_ttl(ms(9000)).lock().await.unwrap();
    let line = Line::up(&server, &[&a, &b], "clock", 4).await;
    let _stepped = step(&clock, FORWARD).await;
    let reason = soon("the holder is told at its next renewal", ms(3000) + SLACK, held.lost()).await;
    assert_eq!(reason, LossReason::Taken);
    let mut order = line.order(HAND_OVER * 4 + ms(5000) + SLACK).await;
    order.sort_unstable();
    assert_eq!(order, [0, 1, 2, 3]);
    server.is_as_new(&a, "clock").await;
}

/// Whose lease it is: the only one that is shown, with no more than it may have.
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
