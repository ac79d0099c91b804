//! Servers that do not answer, or refuse a session: how long anybody waits, what is told, and what is left.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;
use lock_testkit::faults::Injected;
use lock_testkit::proxy::{Direction, LinkFault, Proxy, Toxic};
use lock_testkit::testing::about_time;
use lock_testkit_servers::zookeeper::NodeKind;
use lock_zk::{ClientOptions, ErrorKind, SessionState, ZkConfig, ZkLocks};

use crate::support::{
    LASTING, PROMPTLY, SESSION, client, connected, eventually, fails, link, ms, nodes, over, server, soon,
};

fn silence(link: &Proxy, direction: Direction) -> Injected<'static> {
    link.inject(LinkFault::new(Toxic::Hold, direction))
}

/// A client over this link that waits for one request, and for any answer, this long.
async fn waiting_for(link: &Proxy, session: Duration, request: Duration, patience: Duration) -> ZkLocks {
    let mut options = ClientOptions::default();
    (options.op_timeout, options.patience) = (request, patience);
    let config = ZkConfig::new(over([link])).with_session_timeout(session).with_tick_time(ms(200));
    connected(config.with_client(options)).await
}

async fn is(locks: &ZkLocks, state: SessionState) {
    eventually(&format!("{state:?}"), PROMPTLY, async || locks.session_state() == state).await;
}

#[test]
fn a_try_that_waits_for_a_session_first_takes_no_longer_than_another() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, limit) = (link(&server), ms(4000));
        let locks = waiting_for(&link, ms(6000), limit, PROMPTLY).await;
        let silent = silence(&link, Direction::Both);
        is(&locks, SessionState::Lost).await;
        let mutex = locks.mutex("late");
        let began = Instant::now();
        let trying = tokio::spawn(async move { mutex.try_lock().await });
        tokio::time::sleep(limit / 2).await;
        // A new session is opened, and answers nothing.
        let mute = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient).on_request(1, "mutex"));
        silent.heal().unwrap();
        let tried = soon("the try", limit * 3, trying).await.unwrap();
        assert!(began.elapsed() < limit + ms(500), "{:?} for {limit:?}: {tried:?}", began.elapsed());
        mute.heal().unwrap();
    });
}

#[test]
fn a_wait_whose_listing_was_under_way_for_longer_than_its_lease_looks_again() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, holder) = (link(&server), client(server.url(), LASTING).await);
        let locks = waiting_for(&link, LASTING, PROMPTLY, LASTING).await;
        let held = holder.mutex("spent").with_ttl(LASTING).lock().await.unwrap();
        let (mutex, ttl) = (locks.mutex("spent").with_ttl(ms(500)), ms(500));
        let waiting = tokio::spawn(async move { mutex.lock().await });
        eventually("a watch", PROMPTLY, async || server.figure("zk_watch_count").await.unwrap() == 1).await;
        // The release is told, and what is asked for then waits on its way.
        let held_up = silence(&link, Direction::ToServer);
        held.release().await.unwrap();
        tokio::time::sleep(ttl * 2).await;
        held_up.heal().unwrap();
        let next = soon("the waiter is granted", PROMPTLY, waiting).await.unwrap().unwrap();
        assert!(next.is_held());
        next.release().await.unwrap();
    });
}

#[test]
fn permits_that_were_under_way_for_longer_than_their_lease_are_searched_for_and_kept() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let link = link(&server);
        let locks = waiting_for(&link, LASTING, PROMPTLY, LASTING).await;
        let (semaphore, ttl) = (locks.semaphore("spent", 2).with_ttl(ms(500)), ms(500));
        // The transaction that makes the permits is carried out, and its answer waits on its way.
        let held_up = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient).on_request(1, "-lease-"));
        let acquiring = tokio::spawn(async move { semaphore.acquire().await });
        held_up.applied(PROMPTLY).await.unwrap();
        tokio::time::sleep(ttl * 2).await;
        held_up.heal().unwrap();
        let held = soon("the permit is granted", PROMPTLY, acquiring).await.unwrap().unwrap();
        assert!(held.is_held());
        held.release().await.unwrap();
    });
}

#[test]
fn a_wait_goes_on_while_everything_is_answered_however_seldom_that_is() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, holder) = (link(&server), client(server.url(), LASTING).await);
        let patience = ms(500);
        let locks = waiting_for(&link, LASTING, ms(2000), patience).await;
        let held = holder.mutex("calm").lock().await.unwrap();
        let mutex = locks.mutex("calm");
        let waiting = tokio::spawn(async move { mutex.lock().await });
        tokio::time::sleep(patience * 6).await;
        assert!(!waiting.is_finished(), "{:?}", waiting.await);
        held.release().await.unwrap();
        soon("granted", PROMPTLY, waiting).await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn a_wait_without_an_answer_ends_with_its_patience_and_nobody_knows_how() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, holder) = (link(&server), client(server.url(), LASTING).await);
        let patience = ms(2000);
        let locks = waiting_for(&link, LASTING, ms(2000), patience).await;
        let _held = holder.mutex("mute").lock().await.unwrap();
        let mutex = locks.mutex("mute");
        let waiting = tokio::spawn(async move { mutex.lock().await });
        let truth = server.client().await.unwrap();
        eventually("two in the queue", PROMPTLY, async || nodes(&truth, "mute").await.len() == 2).await;
        let _silent = silence(&link, Direction::ToClient);
        let began = Instant::now();
        let error = fails(soon("the end of its patience", PROMPTLY, waiting).await.unwrap(), ErrorKind::Indeterminate);
        // What is not asked is not unanswered: so a quarter more.
        assert!(began.elapsed() < patience * 2, "after {:?}: {error}", began.elapsed());
    });
}

#[test]
fn a_wait_that_outlasts_its_session_in_silence_ends_with_its_patience_and_nobody_knows_how() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, holder) = (link(&server), client(server.url(), LASTING).await);
        let patience = ms(6000);
        let locks = waiting_for(&link, ms(2000), ms(1000), patience).await;
        let _held = holder.mutex("deaf").lock().await.unwrap();
        let mutex = locks.mutex("deaf");
        let waiting = tokio::spawn(async move { mutex.lock().await });
        let truth = server.client().await.unwrap();
        eventually("two in the queue", PROMPTLY, async || nodes(&truth, "deaf").await.len() == 2).await;
        let _silent = silence(&link, Direction::Both);
        is(&locks, SessionState::Lost).await;
        fails(soon("the end of its patience", patience * 2, waiting).await.unwrap(), ErrorKind::Indeterminate);
    });
}

#[test]
fn a_session_that_was_given_up_goes_whoever_still_has_a_request_of_it() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, truth) = (link(&server), server.client().await.unwrap());
        let config = ZkConfig::new(over([&link])).with_session_timeout(ms(6000)).with_tick_time(ms(2000));
        let (a, b) = (connected(config).await, client(server.url(), LASTING).await);
        let (_one, two) = (b.mutex("one").lock().await.unwrap(), b.mutex("two").lock().await.unwrap());
        let forgotten = a.mutex("one");
        let mut unpolled = Box::pin(forgotten.lock());
        eventually("two in the queue", PROMPTLY, async || {
            assert!((&mut unpolled).now_or_never().is_none(), "granted beside its holder");
            nodes(&truth, "one").await.len() == 2
        })
        .await;
        let mutex = a.mutex("two");
        let waiting = tokio::spawn(async move { mutex.lock().await });
        eventually("two in the queue", PROMPTLY, async || nodes(&truth, "two").await.len() == 2).await;
        let former = nodes(&truth, "two").await.remove(1);
        let silent = silence(&link, Direction::Both);
        is(&a, SessionState::Lost).await;
        // Before the servers end the session.
        silent.heal().unwrap();
        is(&a, SessionState::Connected).await;
        eventually("in the queue again, without a former place", PROMPTLY, async || {
            let line = nodes(&truth, "two").await;
            line.len() == 2 && !line.contains(&former)
        })
        .await;
        two.release().await.unwrap();
        soon("granted", PROMPTLY, waiting).await.unwrap().unwrap().release().await.unwrap();
        drop(unpolled);
    });
}

#[test]
fn credentials_that_are_refused_when_a_session_is_opened_again_are_told_as_such() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let link = link(&server);
        let config = ZkConfig::new(over([&link])).with_session_timeout(SESSION).with_tick_time(ms(200));
        let locks = connected(config.with_digest("me", "S3CRET")).await;
        let silent = silence(&link, Direction::Both);
        is(&locks, SessionState::Lost).await;
        let no = || Toxic::Answer { text: "-115".to_owned() };
        let _refusals: Vec<_> = (1..=500)
            .map(|nth| link.inject(LinkFault::new(no(), Direction::ToServer).on_request(nth, "digest")))
            .collect();
        silent.heal().unwrap();
        let error = eventually("refused", PROMPTLY, async || {
            let error = locks.mutex("refused").try_lock().await.unwrap_err();
            (error.kind() == ErrorKind::Denied).then_some(error)
        })
        .await;
        assert!(error.is_definite() && std::error::Error::source(&error).is_some(), "{error:?}");
        assert!(!format!("{error:?} {error} {locks:?}").contains("S3CRET"));
        fails(locks.mutex("refused").try_lock_for(ms(100)).await, ErrorKind::Denied);
    });
}

#[test]
fn a_client_comes_back_within_two_seconds_of_an_outage() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let link = link(&server);
        let locks = client(&over([&link]), LASTING).await;
        let held = locks.mutex("outage").with_ttl(LASTING).lock().await.unwrap();
        let refused = link.inject(LinkFault::new(Toxic::Refuse, Direction::Both));
        link.inject(LinkFault::new(Toxic::Reset, Direction::Both)).applied(PROMPTLY).await.unwrap();
        is(&locks, SessionState::Suspended).await;
        // The client crate tries after 3.3 s, and then after 6.6 s.
        tokio::time::sleep(ms(3700)).await;
        refused.heal().unwrap();
        let back = async || locks.session_state() == SessionState::Connected;
        eventually("connected", ms(2000), back).await;
        assert!(held.is_held());
        held.release().await.unwrap();
    });
}

#[test]
fn a_new_session_is_opened_within_two_seconds_of_an_outage() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let links = [(); 3].map(|()| link(&server));
        let locks = client(&over(&links), ms(10_000)).await;
        let on_each =
            |toxic: Toxic| links.each_ref().map(|link| link.inject(LinkFault::new(toxic.clone(), Direction::Both)));
        // All refuse before one is cut: the client would go over to the next one.
        let refuse = on_each(Toxic::Refuse);
        for refuses in &refuse {
            refuses.applied(PROMPTLY).await.unwrap();
        }
        let gone = (refuse, on_each(Toxic::Reset));
        eventually("lost", LASTING, async || locks.session_state() == SessionState::Lost).await;
        // The client crate, left to itself, would try after 5 s, and then after 10 s.
        tokio::time::sleep(ms(6000)).await;
        drop(gone);
        eventually("connected", ms(2000), async || locks.session_state() == SessionState::Connected).await;
        let held = soon("a lock", PROMPTLY, locks.mutex("after").lock()).await.unwrap();
        held.release().await.unwrap();
    });
}

#[test]
fn a_forced_release_that_is_cut_short_leaves_no_reason() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, truth) = (link(&server), server.client().await.unwrap());
        let operator = waiting_for(&link, LASTING, ms(500), PROMPTLY).await;
        let held = client(server.url(), LASTING).await.mutex("cut-short").with_ttl(ms(1000)).lock().await.unwrap();
        truth.create_all("/lock/forced").await.unwrap();
        // The reason is left, and its answer waits on its way.
        let mute = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient).on_request(1, "/lock/forced/"));
        fails(operator.mutex("cut-short").force_release(held.grant_id(), "stuck").await, ErrorKind::Indeterminate);
        mute.heal().unwrap();
        eventually("no reason is left", held.remaining() + ms(2000), async || {
            truth.children("/lock/forced").await.unwrap().unwrap().is_empty()
        })
        .await;
        assert!(held.is_held(), "it was freed");
        held.release().await.unwrap();
    });
}

#[test]
fn a_forced_release_that_is_cut_short_leaves_the_reason_of_another_client() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, truth) = (link(&server), server.client().await.unwrap());
        let operator = waiting_for(&link, LASTING, ms(500), PROMPTLY).await;
        let holder = client(server.url(), LASTING).await;
        let held = [holder.mutex("others").lock().await.unwrap(), holder.mutex("own").lock().await.unwrap()];
        truth.create_all("/lock/forced").await.unwrap();
        let hex = held[0].grant_id().to_string();
        let others = format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
        truth.create(&format!("/lock/forced/{others}"), b"another's", NodeKind::Persistent).await.unwrap();
        // The operator does not learn that one is there. Its own, for the second lock, is deleted after that.
        for held in &held {
            let mute = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient).on_request(1, "/lock/forced/"));
            let freed = operator.mutex(held.name().clone()).force_release(held.grant_id(), "stuck").await;
            fails(freed, ErrorKind::Indeterminate);
            mute.heal().unwrap();
        }
        eventually("its own reason is deleted", PROMPTLY, async || {
            truth.children("/lock/forced").await.unwrap().unwrap().len() < 2
        })
        .await;
        assert_eq!(truth.children("/lock/forced").await.unwrap().unwrap(), [others]);
        for held in held {
            held.release().await.unwrap();
        }
    });
}

/// The calls of each sort at servers of each sort.
const CALLS: usize = 170;
/// The time that a call may take beside its bound, since a thousand share two cores.
const SLACK: Duration = ms(300);

#[test]
fn none_of_a_thousand_tries_waits_and_questions_outlasts_its_bound_when_the_server_has_stopped() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (bound, waits_for) = (ms(1000), ms(300));
        let timed = async |call: &mut (dyn Future<Output = bool> + Send + Unpin)| {
            let began = Instant::now();
            assert!(!call.await, "granted or answered by a server that has stopped");
            began.elapsed()
        };
        // It hangs, or it is gone.
        for toxics in [&[Toxic::Hold][..], &[Toxic::Refuse, Toxic::Reset]] {
            let link = link(&server);
            let locks = waiting_for(&link, LASTING, bound, PROMPTLY).await;
            let _held = locks.mutex("stopped/0").lock().await.unwrap();
            let mutexes: Vec<_> = (0..CALLS).map(|i| locks.mutex(format!("stopped/{}", i / 5))).collect();
            let semaphore = locks.semaphore("stopped", 2);
            let _stopped: Vec<_> =
                toxics.iter().map(|toxic| link.inject(LinkFault::new(toxic.clone(), Direction::Both))).collect();
            let tries = join_all(mutexes.iter().enumerate().map(|(i, mutex)| {
                let (mutex, semaphore) = (mutex.clone(), semaphore.clone());
                async move {
                    let granted = async {
                        if i % 2 == 0 {
                            mutex.try_lock().await.is_ok_and(|held| held.is_some())
                        } else {
                            semaphore.try_acquire().await.is_ok_and(|held| held.is_some())
                        }
                    };
                    timed(&mut Box::pin(granted)).await
                }
            }));
            let waits = join_all(mutexes.iter().enumerate().map(|(i, mutex)| {
                let (mutex, semaphore) = (mutex.clone(), semaphore.clone());
                async move {
                    let granted = async {
                        if i % 2 == 0 {
                            mutex.try_lock_for(waits_for).await.is_ok_and(|held| held.is_some())
                        } else {
                            semaphore.try_acquire_for(waits_for).await.is_ok_and(|held| held.is_some())
                        }
                    };
                    timed(&mut Box::pin(granted)).await
                }
            }));
            let questions = join_all(mutexes.iter().enumerate().map(|(i, mutex)| {
                let (mutex, semaphore) = (mutex.clone(), semaphore.clone());
                async move {
                    let answered = async {
                        if i % 2 == 0 { mutex.inspect().await.is_ok() } else { semaphore.inspect().await.is_ok() }
                    };
                    timed(&mut Box::pin(answered)).await
                }
            }));
            let (tries, waits, questions) = tokio::join!(tries, waits, questions);
            let late = |took: &[Duration], bound| took.iter().filter(|took| **took > bound + SLACK).count();
            let longest = |took: &[Duration]| took.iter().max().copied().unwrap_or_default();
            println!(
                "{toxics:?}: {CALLS} tries took {:?} at most, {CALLS} waits {:?}, {CALLS} questions {:?}",
                longest(&tries),
                longest(&waits),
                longest(&questions)
            );
            let late = [late(&tries, bound), late(&waits, waits_for + bound), late(&questions, bound)];
            assert_eq!(late, [0; 3], "late at {toxics:?}");
        }
    });
}
