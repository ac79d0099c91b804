//! Servers that stand still (SIGSTOP): connections stay, nothing is answered, and on resume everything that was sent
//! meanwhile is carried out (C-M20, C-M21, C-W11).

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use lock_redis::{ErrorKind, LossReason, QuorumLocks};
use lock_testkit::testing::StoppedRuntime;

use crate::bounds;
use crate::servers::{ALL, SHORT, SLACK, Servers, about_time, eventually, hasty, key, long, ms, obtain};

#[test]
fn two_of_five_that_stand_still_cost_nothing_and_are_clean_when_they_go_on() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        let (locks, other) = (servers.client().await, servers.client().await);
        let mutex = locks.mutex("stall").with_lease(long());
        let held = servers.hold_everywhere(&mutex).await;
        servers.stop(&[0, 1]);
        // The first ones on the live connections, the later ones after these were given up: whoever waits for one of the two,
        // waits for 2 s.
        let began = Instant::now();
        held.release().await.unwrap();
        let mut rounds = 0;
        while began.elapsed() < ms(6000) || rounds < 50 {
            let began = Instant::now();
            let held = mutex.lock().await.unwrap();
            assert!(other.mutex("stall").try_lock().await.unwrap().is_none());
            held.extend(ms(61_000)).await.unwrap();
            assert_eq!(mutex.inspect().await.unwrap().holders.len(), 1);
            held.release().await.unwrap();
            assert!(began.elapsed() < ms(1000), "with two stalled servers a round took {:?}", began.elapsed());
            rounds += 1;
            tokio::time::sleep(ms(20)).await;
        }
        servers.cont(&[0, 1]);
        servers.have_nothing_left(ALL).await;
        // And they are asked again.
        servers.hold_everywhere(&mutex).await.release().await.unwrap();
        servers.have_nothing_left(ALL).await;
    });
}

/// It is the client's process that stands still, for longer than it is patient, and its connections end meanwhile.
#[test]
fn waits_of_a_process_that_stood_still_go_on() {
    const PATIENCE: Duration = Duration::from_secs(3);
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        let holder = servers.client().await;
        let held = holder.mutex("held").with_lease(long()).lock().await.unwrap();
        let mut options = hasty();
        options.patience = PATIENCE;
        let config = servers.config().with_client(options);
        let waits = StoppedRuntime::run(async move || {
            let locks = QuorumLocks::connect_with(config).await.unwrap();
            let wait = |()| {
                let mutex = locks.mutex("held").with_lease(long());
                tokio::spawn(async move { mutex.lock().await?.release().await })
            };
            [(); 3].map(wait).into()
        });
        let waiters = format!("{}:w", key("held"));
        eventually("somebody waits", ms(5000), async || {
            (servers.run(0, &["EXISTS", &waiters]).await.as_int() == Some(1)).then_some(())
        })
        .await;
        let ended = waits.stand_still(PATIENCE * 2, ms(30_000));
        // What comes of it when it goes on is an error, at first.
        tokio::time::sleep(PATIENCE).await;
        for server in ALL {
            servers.run(*server, &["CLIENT", "KILL", "TYPE", "normal"]).await;
        }
        tokio::time::sleep(PATIENCE + SHORT).await;
        held.release().await.unwrap();
        ended.await.unwrap();
    });
}

#[test]
fn no_wait_and_no_try_outlasts_its_bound() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        let locks = QuorumLocks::connect_with(servers.config().with_client(bounds::options())).await.unwrap();
        let waiters = format!("{}:w", key("held"));
        bounds::a_thousand_calls_end_in_time(
            |name| locks.mutex(name),
            async || {
                eventually("somebody waits", ms(5000), async || {
                    (servers.run(0, &["EXISTS", &waiters]).await.as_int() == Some(1)).then_some(())
                })
                .await;
                servers.stop(&[0, 1, 2]);
            },
        )
        .await;
        servers.cont(&[0, 1, 2]);
    });
}

#[test]
fn three_of_five_that_stand_still_are_a_typed_error_in_time_and_leave_nothing() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        let locks = servers.hasty_client().await;
        let mutex = locks.mutex("stall").with_lease(long());
        servers.stop(&[0, 2, 4]);
        for wait in [0, 0, 0, 200, 0] {
            let began = Instant::now();
            let error = mutex.try_lock_for(ms(wait)).await.unwrap_err();
            assert!(began.elapsed() < SHORT + ms(wait) + SLACK, "took {:?}", began.elapsed());
            assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
            servers.have_nothing_left(&[1, 3]).await;
        }
        // Dropped while it is on its way.
        assert!(mutex.lock().now_or_never().is_none(), "one poll cannot be enough");
        assert!(tokio::time::timeout(ms(30), mutex.lock()).await.is_err());
        servers.have_nothing_left(&[1, 3]).await;
        servers.cont(&[0, 2, 4]);
        obtain(&locks, "stall").await.release().await.unwrap();
        servers.have_nothing_left(ALL).await;
    });
}

#[test]
fn a_try_does_not_wait_for_its_own_undo_when_its_time_is_over() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        let locks = servers.hasty_client().await;
        let mutex = locks.mutex("stall").with_lease(long());
        servers.hold_everywhere(&mutex).await.release().await.unwrap();
        servers.have_nothing_left(ALL).await;
        for i in [3, 4] {
            servers.run(i, &["SET", &key("stall"), "foreign", "PX", "60000"]).await;
        }
        servers.stop(&[1, 2]);
        let began = Instant::now();
        let trying = tokio::spawn(async move { mutex.try_lock().await });
        eventually("the first one has granted it", SHORT, async || servers.held(0, "stall").await).await;
        servers.stop(&[0]);
        let error = trying.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate, "three of five may carry it out yet: {error}");
        assert!(began.elapsed() < SHORT * 2, "took {:?}", began.elapsed());
        servers.cont(&[0, 1, 2]);
        servers.have_nothing_left(&[0, 1, 2]).await;
    });
}

#[test]
fn a_majority_that_answers_after_the_lease_is_refused_and_cleaned_up() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        let locks = servers.client().await;
        let mutex = locks.mutex("stall").with_ttl(ms(500));
        servers.stop(&[0, 1, 2]);
        let mut trying = Box::pin(mutex.try_lock());
        assert!(trying.as_mut().now_or_never().is_none(), "one poll cannot be enough");
        // Everything was asked before the first poll came back; this is for how long they stand still.
        tokio::time::sleep(ms(900)).await;
        servers.cont(&[0, 1, 2]);
        let error = trying.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(error.to_string().contains("after its own lease had ended"), "{error}");
        servers.have_nothing_left(ALL).await;
        obtain(&locks, "stall").await.release().await.unwrap();
    });
}

/// The replies come in time, but the process is paused before it takes the third one up.
#[test]
fn a_pause_before_the_majority_is_complete_counts_as_elapsed() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let home = runtime();
    let Some(servers) = home.block_on(Servers::start()) else { return };
    home.block_on(async {
        let locks = servers.client().await;
        for (pause, late) in [(ms(100), false), (ms(700), true)] {
            let mutex = locks.mutex("stall").with_ttl(ms(600));
            let began = Instant::now();
            let mut trying = Box::pin(mutex.try_lock());
            assert!(trying.as_mut().now_or_never().is_none(), "one poll cannot be enough");
            // The connections' own tasks send, then nothing runs any more, as in SIGSTOP or a long garbage collection.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            std::thread::sleep(pause);
            let outcome = trying.await;
            // A machine that is slow may make the short one late, too.
            let late = late || began.elapsed() >= ms(590);
            match outcome {
                Ok(held) => {
                    let held = held.unwrap();
                    assert!(pause < ms(600), "granted although the lease was over");
                    assert!(held.remaining() < ms(600) - pause, "{:?} remain after a pause", held.remaining());
                    held.release().await.unwrap();
                }
                Err(error) => assert!(late && error.to_string().contains("after its own lease had ended"), "{error}"),
            }
            servers.have_nothing_left(ALL).await;
        }
    });
}

#[test]
fn a_holder_whose_majority_stands_still_is_told_by_its_deadline() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        let (locks, other) = (servers.hasty_client().await, servers.hasty_client().await);
        let held = locks.mutex("stall").with_ttl(ms(2000)).lock().await.unwrap();
        servers.stop(&[0, 1, 2]);
        let left = held.remaining();
        let reason = tokio::time::timeout(left + SLACK, held.lost()).await.expect("told by the deadline");
        assert_eq!(reason, LossReason::Expired);
        let release = held.release();
        assert_eq!(release.await.unwrap_err().kind(), ErrorKind::NotHeld);
        servers.cont(&[0, 1, 2]);
        obtain(&other, "stall").await.release().await.unwrap();
        servers.have_nothing_left(ALL).await;
    });
}

/// Tests that what was sent to a server that stood still is undone there, also by a client that is gone otherwise.
#[test]
fn connections_that_were_given_up_are_cleaned_after_a_resume() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        let locks: QuorumLocks = servers.hasty_client().await;
        servers.stop(&[3, 4]);
        // Sent to all, and held for long enough for both connections to be given up.
        let mut held = Vec::new();
        for i in 0..5 {
            held.push(locks.mutex(format!("stall/{i}")).with_lease(long()).lock().await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(2500)).await;
        for held in held {
            assert!(held.is_held());
            held.release().await.unwrap();
        }
        servers.cont(&[3, 4]);
        // Each take is carried out now, with a lease that begins now and is longer than anybody waits here.
        let began = Instant::now();
        servers.have_nothing_left(ALL).await;
        println!("clean after {:?}", began.elapsed());
    });
}
