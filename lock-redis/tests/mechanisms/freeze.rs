//! A server that stands still (SIGSTOP): connections stay, nothing is answered, and on resume everything that was sent
//! meanwhile is carried out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use lock_redis::{ErrorKind, LossReason, Phase, RedisConfig, RedisLocks};
use lock_testkit::testing::StoppedRuntime;

use crate::bounds;
use crate::queue::QueuedTasks;
use crate::server::{
    COUNTER, HAND_OVER, PROMPTLY, SHORT, SLACK, Server, about_time, calls, eventually, hasty, long, ms, obtain,
    refused, short, soon,
};

/// Lets the server stand still for this long.
async fn freeze(server: &Server, time: Duration) {
    server.stop().unwrap();
    tokio::time::sleep(time).await;
    server.cont().unwrap();
}

#[test]
fn no_wait_and_no_try_outlasts_its_bound() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let config = RedisConfig::new(server.url()).with_client(bounds::options());
        let locks = RedisLocks::connect_with(config).await.unwrap();
        bounds::a_thousand_calls_end_in_time(
            |name| locks.mutex(name),
            async || {
                server.until_queued("held", 84).await;
                server.stop().unwrap();
            },
        )
        .await;
        server.cont().unwrap();
    });
}

#[test]
fn a_freeze_shorter_than_the_lease_costs_nobody_anything() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let (holder, a, b) = (server.client().await, server.client().await, server.client().await);
        let held = holder.mutex("freeze").with_ttl(ms(6000)).lock().await.unwrap();
        let queue = QueuedTasks::up(&server, &[&a, &b], "freeze", 4).await;
        let mut lost = held.lost();
        for _ in 0..2 {
            freeze(&server, ms(1500)).await;
            assert!(tokio::time::timeout(ms(1000), &mut lost).await.is_err(), "lost by a freeze");
        }
        assert!(held.is_held() && server.queued("freeze").await == 4);
        held.release().await.unwrap();
        assert_eq!(queue.order(HAND_OVER * 4 + SLACK).await, [0, 1, 2, 3]);
        server.is_as_new(&a, "freeze").await;
    });
}

#[test]
fn a_freeze_beyond_the_liveness_of_waiters_drops_none_and_keeps_their_order() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        server.knows_the_scripts().await;
        let (a, b) = (server.client().await, server.client().await);
        let holder = server.patient_client().await;
        let held = holder.mutex("freeze").with_lease(long()).lock().await.unwrap();
        let queue = QueuedTasks::up(&server, &[&a, &b], "freeze", 6).await;
        // So that it knows of the waiters, and its release is one request.
        assert!(holder.mutex("freeze").try_lock_for(ms(5)).await.unwrap().is_none());
        let entered = calls(&server, "zadd").await;
        server.stop().unwrap();
        // The release is the first that the server finds when it goes on, before any sign of life that the waiters sent
        // meanwhile; the last ones are older than their liveness then.
        let released = tokio::spawn(held.release());
        tokio::time::sleep(ms(4500)).await;
        server.cont().unwrap();
        released.await.unwrap().unwrap();
        assert_eq!(queue.order(HAND_OVER * 6 + SLACK).await, [0, 1, 2, 3, 4, 5]);
        // Who is dropped enters again.
        let dropped = calls(&server, "zadd").await - entered;
        assert_eq!(dropped, 0, "waiters were dropped, though it was the server that was silent");
        server.is_as_new(&a, "freeze").await;
    });
}

#[test]
fn a_lease_that_ends_in_a_freeze_is_lost_on_time_and_the_first_waiter_has_the_lock_afterwards() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let (holder, a, b) = (server.hasty_client().await, server.client().await, server.client().await);
        let held = holder.mutex("freeze").with_lease(short()).lock().await.unwrap();
        let queue = QueuedTasks::up(&server, &[&a, &b], "freeze", 3).await;
        server.stop().unwrap();
        let left = held.remaining();
        let reason = soon("the holder is told", left + SLACK, held.lost()).await;
        assert_eq!(reason, LossReason::Expired);
        assert!(!held.is_held() && held.remaining().is_zero());
        let began = Instant::now();
        assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::NotHeld);
        assert!(began.elapsed() < SHORT + ms(500), "the release took {:?}", began.elapsed());
        tokio::time::sleep(ms(1500)).await;
        server.cont().unwrap();
        assert_eq!(queue.order(HAND_OVER * 3 + SLACK).await, [0, 1, 2]);
        server.is_as_new(&holder, "freeze").await;
    });
}

#[test]
fn a_release_in_a_freeze_returns_in_time_and_is_finished_afterwards() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let locks = server.hasty_client().await;
        let held = locks.mutex("freeze").with_lease(long()).lock().await.unwrap();
        server.stop().unwrap();
        let began = Instant::now();
        let error = held.release().await.unwrap_err();
        assert!(began.elapsed() < SHORT + ms(500), "the release took {:?}", began.elapsed());
        assert_eq!(
            (error.kind(), error.phase(), error.name()),
            (ErrorKind::Indeterminate, Phase::Release, Some("freeze"))
        );
        let said = crate::server::everything_of(&error).concat();
        assert!(said.contains(&server.shown()), "{said}");
        // Long enough for connections to be given up too.
        tokio::time::sleep(ms(2500)).await;
        server.cont().unwrap();
        let held = obtain(&locks, "freeze", ms(3000)).await;
        held.release().await.unwrap();
        server.has_nothing_left().await;
    });
}

#[test]
fn a_try_in_a_freeze_ends_within_one_operation_timeout() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let locks = server.hasty_client().await;
        let mutex = locks.mutex("freeze").with_lease(long());
        server.stop().unwrap();
        // The first ones on the live connection, the later ones after it was given up.
        for wait in [0, 0, 0, 200, 0, 200] {
            let began = Instant::now();
            let outcome = mutex.try_lock_for(ms(wait)).await;
            let took = began.elapsed();
            let kinds = [ErrorKind::Unavailable, ErrorKind::Indeterminate];
            refused(outcome, &kinds, &[Phase::Acquire, Phase::Wait, Phase::Connect], "freeze", &server.shown());
            assert!(took < SHORT + ms(wait) + ms(400), "a try took {took:?}");
        }
        server.cont().unwrap();
        let held = obtain(&locks, "freeze", ms(3000)).await;
        held.release().await.unwrap();
        server.has_nothing_left().await;
    });
}

#[test]
fn a_wait_without_deadline_gives_up_when_its_patience_is_at_its_end() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let (holder, locks) = (server.client().await, server.hasty_client().await);
        let held = holder.mutex("held").with_lease(long()).lock().await.unwrap();
        // One that asks for the first time when it is too late, and one that waits already.
        let queued = tokio::spawn({
            let mutex = locks.mutex("held");
            async move { (mutex.lock().await, Instant::now()) }
        });
        server.until_queued("held", 1).await;
        server.stop().unwrap();
        let began = Instant::now();
        let fresh = tokio::spawn({
            let mutex = locks.mutex("fresh");
            async move { (mutex.lock().await, Instant::now()) }
        });
        for (name, waiting) in [("held", queued), ("fresh", fresh)] {
            let (outcome, ended) = soon("the wait ends", ms(3000) + SHORT * 2 + SLACK, waiting).await.unwrap();
            let kinds = [ErrorKind::Unavailable, ErrorKind::Indeterminate];
            refused(outcome, &kinds, &[Phase::Acquire, Phase::Wait, Phase::Connect], name, &server.shown());
            let took = ended - began;
            assert!(took >= ms(1900), "{name}: gave up after {took:?}");
        }
        server.cont().unwrap();
        held.release().await.unwrap();
        for name in ["held", "fresh"] {
            obtain(&locks, name, ms(3000)).await.release().await.unwrap();
        }
        server.has_nothing_left().await;
    });
}

/// It is the client's process that stands still, for longer than it is patient. Its heartbeats are answered as soon as it goes on.
#[test]
fn waits_of_a_process_that_stood_still_go_on() {
    const PATIENCE: Duration = Duration::from_secs(3);
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let holder = server.client().await;
        let held = holder.mutex("held").with_lease(long()).lock().await.unwrap();
        let mut options = hasty();
        options.patience = PATIENCE;
        let config = RedisConfig::new(server.url()).with_client(options);
        let waits = StoppedRuntime::run(async move || {
            let locks = RedisLocks::connect_with(config).await.unwrap();
            let wait = |()| {
                let mutex = locks.mutex("held").with_lease(long());
                tokio::spawn(async move { mutex.lock().await?.release().await })
            };
            [(); 3].map(wait).into()
        });
        server.until_queued("held", 3).await;
        let ended = waits.stand_still(PATIENCE * 2, ms(30_000));
        // So that they find the lock held when they go on.
        tokio::time::sleep(PATIENCE * 2 + SHORT).await;
        held.release().await.unwrap();
        ended.await.unwrap();
    });
}

#[test]
fn the_first_request_counts_for_the_patience_too() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let mut options = hasty();
        (options.op_timeout, options.patience) = (ms(3000), ms(3100));
        let locks = RedisLocks::connect_with(RedisConfig::new(server.url()).with_client(options)).await.unwrap();
        server.stop().unwrap();
        let began = Instant::now();
        let kinds = [ErrorKind::Unavailable, ErrorKind::Indeterminate];
        refused(
            locks.mutex("freeze").lock().await,
            &kinds,
            &[Phase::Acquire, Phase::Connect],
            "freeze",
            &server.shown(),
        );
        // One operation timeout late at most.
        assert!(began.elapsed() < ms(3100 + 3000) + SLACK, "gave up after {:?}", began.elapsed());
        server.cont().unwrap();
        obtain(&locks, "freeze", PROMPTLY).await.release().await.unwrap();
        server.has_nothing_left().await;
    });
}

#[test]
fn an_acquisition_that_was_dropped_in_a_freeze_leaves_the_lock_free() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        server.knows_the_scripts().await;
        for (frozen, tries) in [(ms(100), 1), (ms(700), 1), (ms(1400), 4), (ms(2500), 2)] {
            server.say("FLUSHALL").await;
            let locks = server.hasty_client().await;
            server.stop().unwrap();
            for _ in 0..tries {
                let mutex = locks.mutex("freeze").with_lease(long());
                assert!(mutex.lock().now_or_never().is_none(), "one poll cannot be enough");
                // This one has sent its request for sure.
                assert!(tokio::time::timeout(ms(30), mutex.lock()).await.is_err());
                assert!(tokio::time::timeout(ms(30), mutex.try_lock()).await.is_err());
            }
            tokio::time::sleep(frozen).await;
            server.cont().unwrap();
            if tries == 1 {
                // On the first connection: the request was carried out on resume, and only then undone.
                let came = async || (server.run(&["EXISTS", COUNTER]).await.as_int() == Some(1)).then_some(());
                eventually("the request is carried out", PROMPTLY, came).await;
            }
            let other = server.client().await;
            let held = obtain(&other, "freeze", ms(2000) + SLACK).await;
            held.release().await.unwrap();
            server.has_nothing_left().await;
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_never_overlap_while_the_server_stands_still_now_and_then() {
    let Some(server) = Server::start().await else { return };
    let (inside, done) = (Arc::new(Mutex::new((0_u32, 0_u64))), Arc::new(AtomicBool::new(false)));
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let locks = server.hasty_client().await;
        for _ in 0..2 {
            let mutex = locks.mutex("freeze").with_ttl(ms(1000));
            let (inside, done) = (inside.clone(), done.clone());
            tasks.push(tokio::spawn(async move {
                while !done.load(Ordering::Relaxed) {
                    // Whatever a frozen server makes of it.
                    let Ok(held) = mutex.lock().await else { continue };
                    let token = held.fencing_token().unwrap().as_u64();
                    {
                        // Looked at under the mutex: who is held now, after that nobody older is.
                        let mut last = inside.lock().unwrap();
                        if held.is_held() {
                            assert!(token > last.1, "the token {token} is held after {}", last.1);
                            *last = (last.0 + 1, token);
                        }
                    }
                    tokio::time::sleep(ms(20)).await;
                    let _ = held.release().await;
                }
            }));
        }
    }
    for time in [300, 1200, 700, 1600, 200, 0] {
        let before = inside.lock().unwrap().0;
        let goes_on = async || inside.lock().unwrap().0 > before + 10;
        eventually("it is granted again and again", PROMPTLY, goes_on).await;
        freeze(&server, ms(time)).await;
    }
    done.store(true, Ordering::Relaxed);
    for task in tasks {
        soon("the task ends", PROMPTLY, task).await.unwrap();
    }
    let locks = server.client().await;
    eventually("the lock is free", PROMPTLY, async || {
        locks.mutex("freeze").inspect().await.ok()?.is_free().then_some(())
    })
    .await;
    server.is_as_new(&locks, "freeze").await;
}
