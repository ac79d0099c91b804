//! Trouble for the reentrant lock, the read-write lock and the semaphore, whose grants live in a hash.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use lock_redis::{
    Error, ErrorKind, Lease, LeaseOptions, LockName, LossReason, Owner, Permit, Phase, RedisLocks, ReentrantGuard,
    WriteGuard,
};
use tokio::task::JoinHandle;

use crate::server::{
    HAND_OVER, PROMPTLY, SLACK, Server, about_time, eventually, long, ms, often, refused, renewed, short, soon,
};

/// A kind of lock, used as an exclusive one.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Reentrant,
    Write,
    Permits,
}

const KINDS: [Kind; 3] = [Kind::Reentrant, Kind::Write, Kind::Permits];

/// Its guard.
#[derive(Debug)]
enum Held {
    Reentrant(ReentrantGuard),
    Write(WriteGuard),
    Permits(Permit),
}

impl Deref for Held {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        match self {
            Self::Reentrant(guard) => guard,
            Self::Write(guard) => guard,
            Self::Permits(guard) => guard,
        }
    }
}

impl Held {
    async fn release(self) -> Result<(), Error> {
        match self {
            Self::Reentrant(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permits(guard) => guard.release().await,
        }
    }
}

impl Kind {
    fn key(self, name: &str) -> String {
        let space = match self {
            Self::Reentrant => "reentrant",
            Self::Write => "rwlock",
            Self::Permits => "semaphore",
        };
        format!("lock:{space}:{{{name}}}")
    }

    async fn lock(self, locks: &RedisLocks, name: impl Into<LockName>, lease: LeaseOptions) -> Result<Held, Error> {
        match self {
            Self::Reentrant => locks.reentrant(name).with_lease(lease).lock(&Owner::new()).await.map(Held::Reentrant),
            Self::Write => locks.rwlock(name).with_lease(lease).write().await.map(Held::Write),
            Self::Permits => locks.semaphore(name, 3).with_lease(lease).acquire_many(3).await.map(Held::Permits),
        }
    }

    async fn try_lock(self, locks: &RedisLocks, name: impl Into<LockName>) -> Result<Option<Held>, Error> {
        Ok(match self {
            Self::Reentrant => locks.reentrant(name).try_lock(&Owner::new()).await?.map(Held::Reentrant),
            Self::Write => locks.rwlock(name).try_write().await?.map(Held::Write),
            Self::Permits => locks.semaphore(name, 3).try_acquire_many(3).await?.map(Held::Permits),
        })
    }

    /// Waiters in the queue, each behind the one before; each notes its number when it is granted, and is alone then.
    async fn queue(self, server: &Server, clients: &[&RedisLocks], name: &'static str, count: usize) -> QueuedTasks {
        let queue = QueuedTasks::default();
        let mut waiters = Vec::new();
        for number in 0..count {
            let (locks, order, inside) =
                (clients[number % clients.len()].clone(), queue.order.clone(), queue.inside.clone());
            waiters.push(tokio::spawn(async move {
                let held = self.lock(&locks, name, long()).await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                order.lock().unwrap().push(number);
                inside.fetch_sub(1, Ordering::SeqCst);
                held.release().await.unwrap();
            }));
            server.until_in_line(&self.key(name), number + 1).await;
        }
        QueuedTasks { waiters, ..queue }
    }
}

#[derive(Debug, Default)]
struct QueuedTasks {
    order: Arc<Mutex<Vec<usize>>>,
    inside: Arc<AtomicU32>,
    waiters: Vec<JoinHandle<()>>,
}

impl QueuedTasks {
    async fn order(self) -> Vec<usize> {
        for waiter in self.waiters {
            match soon("a waiter is granted", PROMPTLY, waiter).await {
                Ok(()) => {}
                Err(error) => assert!(error.is_cancelled(), "{error}"),
            }
        }
        self.order.lock().unwrap().clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_of_every_kind_that_are_dropped_anywhere_leave_the_others_in_order() {
    let Some(server) = Server::start().await else { return };
    let (holder, a, b) = (server.client().await, server.client().await, server.client().await);
    for kind in KINDS {
        for cancelled in [&[0][..], &[3], &[1, 2], &[0, 1, 2, 3, 4]] {
            let held = kind.lock(&holder, "line", long()).await.unwrap();
            let queue = kind.queue(&server, &[&a, &b], "line", 5).await;
            cancelled.iter().for_each(|number| queue.waiters[*number].abort());
            server.until_in_line(&kind.key("line"), 5 - cancelled.len()).await;
            held.release().await.unwrap();
            let expected: Vec<_> = (0..5).filter(|number| !cancelled.contains(number)).collect();
            assert_eq!(queue.order().await, expected, "{kind:?}");
            server.has_nothing_left().await;
        }
    }
}

#[test]
fn without_memory_every_kind_is_renewed_cancelled_and_released_and_refused_definitely() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let (holder, a, b) = (server.client().await, server.hasty_client().await, server.client().await);
        let mut all = Vec::new();
        for kind in KINDS {
            let held = kind.lock(&holder, "memory", LeaseOptions::new(ms(2000))).await.unwrap();
            let queue = kind.queue(&server, &[&b], "memory", 3).await;
            all.push((kind, held, queue));
        }
        server.say("CONFIG SET maxmemory 1").await;
        for kind in KINDS {
            let shown = server.shown();
            let error =
                refused(kind.try_lock(&a, "new").await, &[ErrorKind::Unavailable], &[Phase::Acquire], "new", &shown);
            assert!(error.to_string().contains("memory"), "{error}");
            let phases = [Phase::Acquire, Phase::Wait];
            refused(kind.lock(&a, "new", long()).await, &[ErrorKind::Unavailable], &phases, "new", &shown);
            assert_eq!(server.run(&["EXISTS", &kind.key("new")]).await.as_int(), Some(0));
        }
        // More than a lease has passed: only renewals can have kept them.
        for (kind, held, queue) in &all {
            assert!(held.is_held(), "{kind:?} was lost for want of memory");
            held.extend(ms(20_000)).await.unwrap();
            queue.waiters[1].abort();
            server.until_in_line(&kind.key("memory"), 2).await;
        }
        for (kind, held, queue) in all {
            let grant = held.grant_id().to_string();
            held.release().await.unwrap();
            assert_eq!(server.run(&["HEXISTS", &kind.key("memory"), &grant]).await.as_int(), Some(0), "{kind:?}");
            server.say("CONFIG SET maxmemory 0").await;
            assert_eq!(queue.order().await, [0, 2], "{kind:?}");
            server.say("CONFIG SET maxmemory 1").await;
        }
        server.has_nothing_left().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_tells_a_server_its_scripts_again() {
    let Some(server) = Server::start().await else { return };
    let (locks, other) = (server.client().await, server.client().await);
    let flush = async || assert!(server.say("SCRIPT FLUSH").await.is_ok());
    for kind in KINDS {
        flush().await;
        let held = kind.lock(&locks, "flush", often()).await.unwrap();
        flush().await;
        held.extend(often().ttl).await.unwrap();
        flush().await;
        assert!(kind.try_lock(&other, "flush").await.unwrap().is_none());
        flush().await;
        let queue = kind.queue(&server, &[&other], "flush", 2).await;
        for _ in 0..4 {
            flush().await;
            renewed(&held, 1).await;
        }
        flush().await;
        held.release().await.unwrap();
        assert_eq!(queue.order().await, [0, 1], "{kind:?}");
    }
    flush().await;
    let guard = locks.rwlock("flush").write().await.unwrap();
    flush().await;
    let guard = guard.downgrade().await.unwrap();
    flush().await;
    assert!(locks.rwlock("flush").force_release(guard.grant_id(), "the test asks").await.unwrap());
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_of_every_kind_learn_of_a_restart_without_data_and_waiters_get_in_line_again() {
    let Some(server) = Server::start().await else { return };
    let (holder, a, b) = (server.client().await, server.client().await, server.client().await);
    let mut all = Vec::new();
    for kind in KINDS {
        let held = kind.lock(&holder, "restart", short()).await.unwrap();
        all.push((kind, held, kind.queue(&server, &[&a, &b], "restart", 4).await));
    }
    server.restart().await;
    for (kind, held, queue) in all {
        let reason = soon("the loss is told", ms(3000) + SLACK, held.lost()).await;
        assert!(matches!(reason, LossReason::Taken | LossReason::Expired), "{kind:?}: {reason}");
        assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::NotHeld);
        let mut order = queue.order().await;
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2, 3], "{kind:?}");
    }
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_data_at_the_key_of_any_kind_is_a_typed_error_and_stays_as_it_is() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let redisson = ["HSET", "", "0f8fad5b-d9cb-469f-a165-70867728950e:42", "1"];
    let hash = ["HSET", "", "field", "value", "other", "1:2:3"];
    let list = ["LPUSH", "", "value"];
    let text = ["SET", "", "value"];
    for foreign in [&redisson[..], &hash, &list, &text] {
        for kind in KINDS {
            let often = LeaseOptions::new(ms(3000)).with_renew_every(ms(100));
            let renewed = kind.lock(&locks, "renewed", often).await.unwrap();
            let released = kind.lock(&locks, "released", long()).await.unwrap();
            let mut data = Vec::new();
            for name in ["fresh", "renewed", "released"] {
                let mut command = foreign.to_vec();
                let key = kind.key(name);
                command[1] = &key;
                server.run(&["DEL", &key]).await;
                server.run(&command).await;
                data.push((key.clone(), server.run(&["DUMP", &key]).await));
            }
            let (protocol, shown) = (&[ErrorKind::Protocol], server.shown());
            refused(kind.try_lock(&locks, "fresh").await, protocol, &[Phase::Acquire], "fresh", &shown);
            refused(kind.lock(&locks, "fresh", long()).await, protocol, &[Phase::Acquire], "fresh", &shown);
            assert_eq!(released.release().await.unwrap_err().kind(), ErrorKind::NotHeld, "{kind:?} {foreign:?}");
            let reason = soon("the next renewal finds it out", ms(3000) + SLACK, renewed.lost()).await;
            assert!(matches!(reason, LossReason::Taken | LossReason::Expired), "{kind:?} {foreign:?}: {reason}");
            drop(renewed);
            for (key, dump) in data {
                assert_eq!(server.run(&["DUMP", &key]).await, dump, "{key} was touched");
                assert_eq!(server.run(&["PTTL", &key]).await.as_int(), Some(-1), "{key} was given an end");
                server.run(&["DEL", &key]).await;
            }
            server.has_nothing_left().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_kinds_at_one_key_refuse_each_other_while_one_holds() {
    let Some(server) = Server::start().await else { return };
    let (a, b) = (server.client().await, server.client().await);
    let jobs = || LockName::from_key("jobs").unwrap();
    for kind in KINDS {
        let held = kind.lock(&a, jobs(), long()).await.unwrap();
        for other in KINDS.into_iter().filter(|other| *other as u8 != kind as u8) {
            let error = other.try_lock(&b, jobs()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{other:?} beside {kind:?}: {error}");
        }
        assert_eq!(b.mutex(jobs()).try_lock_for(ms(50)).await.unwrap_err().kind(), ErrorKind::Protocol);
        assert!(held.is_held());
        held.release().await.unwrap();
        let held = b.mutex(jobs()).lock().await.unwrap();
        assert_eq!(kind.try_lock(&a, jobs()).await.unwrap_err().kind(), ErrorKind::Protocol);
        held.release().await.unwrap();
        server.has_nothing_left().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_of_any_kind_that_was_removed_behind_its_back_is_lost_and_the_next_one_is_let_in() {
    let Some(server) = Server::start().await else { return };
    let (a, b) = (server.client().await, server.client().await);
    for kind in KINDS {
        let held = kind.lock(&a, "gone", short()).await.unwrap();
        let queue = kind.queue(&server, &[&b], "gone", 1).await;
        server.run(&["DEL", &kind.key("gone")]).await;
        let reason = soon("the renewal finds it out", short().ttl + SLACK, held.lost()).await;
        assert!(matches!(reason, LossReason::Taken | LossReason::Expired), "{reason}");
        assert_eq!(soon("let in", HAND_OVER + SLACK, queue.order()).await, [0]);
        eventually("nothing is held", PROMPTLY, async || {
            (server.run(&["EXISTS", &kind.key("gone")]).await.as_int() == Some(0)).then_some(())
        })
        .await;
    }
}

/// For a waiter of another client, which may have died a moment ago, the server keeps it for a claim time.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_of_the_client_that_releases_has_its_whole_lease_by_the_reply() {
    let Some(server) = Server::start().await else { return };
    let (locks, other) = (server.client().await, server.client().await);
    let lease = long().with_auto_renew(false);
    for kind in KINDS {
        for (waits, is_own) in [(&locks, true), (&other, false)] {
            let held = kind.lock(&locks, "own", lease).await.unwrap();
            let waits = waits.clone();
            let waiting = tokio::spawn(async move { kind.lock(&waits, "own", lease).await });
            server.until_in_line(&kind.key("own"), 1).await;
            held.release().await.unwrap();
            let left = server.run(&["PTTL", &kind.key("own")]).await.as_int().unwrap();
            // Another client's waiter claims it soon.
            assert!(left >= 20_000 || !is_own, "{kind:?}: {left} ms");
            let next = soon("handed over", HAND_OVER + SLACK, waiting).await.unwrap().unwrap();
            eventually("a whole lease", PROMPTLY, async || (next.remaining() > ms(20_000)).then_some(())).await;
            next.release().await.unwrap();
        }
    }
}
