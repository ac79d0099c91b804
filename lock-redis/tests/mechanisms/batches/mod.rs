//! Requests that go together: what one script does for many locks, and what becomes of it when it is lost, refused, or not wanted
//! by all any more.

mod permits;

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use futures_util::FutureExt;
use futures_util::future::{join, join_all, poll_fn};
use lock_redis::{ClientOptions, Error, ErrorKind, Mutex, MutexGuard, RedisConfig, RedisLocks};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use tokio::runtime::Handle;

use crate::server::{PROMPTLY, Server, calls, configured, eventually, key, long, ms, obtain, runs, soon};

/// As many locks as are asked for at the same moment.
const CROWD: usize = 40;

fn name(number: usize) -> String {
    format!("batch/{number}")
}

/// A server that knows the scripts of batches, and a client of it by way of a proxy.
struct Crowded {
    server: Server,
    proxy: Proxy,
    locks: RedisLocks,
}

impl Crowded {
    async fn start() -> Option<Self> {
        let server = Server::start().await?;
        let proxy = Proxy::to(server.address(), Protocol::Resp).unwrap();
        let locks = configured(RedisConfig::new(format!("redis://{}", proxy.address()))).await.unwrap();
        let crowded = Self { server, proxy, locks };
        // The first batches are refused, and teach it their scripts.
        eventually("the server knows them", PROMPTLY, async || {
            let before = runs(&crowded.server).await;
            release_all(crowded.all().await).await;
            (runs(&crowded.server).await - before < CROWD as u64 / 2).then_some(())
        })
        .await;
        Some(crowded)
    }

    async fn try_each(&self) -> Vec<Result<Option<MutexGuard>, Error>> {
        let mutexes: Vec<_> = (0..CROWD).map(|i| self.locks.mutex(name(i)).with_lease(long())).collect();
        join_all(mutexes.iter().map(Mutex::try_lock)).await
    }

    /// Each of the crowd's locks. In a test on one thread all but the first one have asked when the batch is sent.
    async fn all(&self) -> Vec<MutexGuard> {
        self.try_each().await.into_iter().map(|outcome| outcome.unwrap().expect("nobody else holds it")).collect()
    }

    /// All of them are free, soon, for somebody else.
    async fn are_free(&self) {
        let other = self.server.client().await;
        for number in 0..CROWD {
            obtain(&other, name(number), PROMPTLY).await.release().await.unwrap();
        }
        self.server.has_nothing_left().await;
    }
}

async fn release_all(held: Vec<MutexGuard>) {
    join_all(held.into_iter().map(|guard| async { guard.release().await.unwrap() })).await;
}

#[tokio::test]
async fn what_is_asked_for_at_the_same_moment_goes_together_and_what_is_asked_for_alone_goes_by_itself() {
    let Some(crowded) = Crowded::start().await else { return };
    let before = runs(&crowded.server).await;
    let held = crowded.all().await;
    // One that finds nobody else there, and the others together; in more than one batch if this task stands still meanwhile.
    let scripts = runs(&crowded.server).await - before;
    assert!(scripts < CROWD as u64 / 2, "{scripts} scripts");
    let mut ids: Vec<_> = held.iter().map(|guard| guard.grant_id()).collect();
    for guard in &held {
        let its = crowded.server.run(&["GET", &key(guard.name().as_str())]).await.as_text().unwrap();
        assert!(its.starts_with(&guard.grant_id().to_string()), "{its}");
        assert!(its.ends_with(&guard.fencing_token().unwrap().to_string()), "{its}");
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), CROWD);
    let (tokens, before): (Vec<_>, _) =
        (held.iter().map(MutexGuard::fencing_token).collect(), runs(&crowded.server).await);
    release_all(held).await;
    let scripts = runs(&crowded.server).await - before;
    assert!(scripts < CROWD as u64 / 2, "{scripts} scripts");
    crowded.server.has_nothing_left().await;
    let again = crowded.all().await;
    assert!(again.iter().zip(tokens).all(|(guard, before)| guard.fencing_token() > before));
    release_all(again).await;
    crowded.server.say("CONFIG RESETSTAT").await;
    crowded.locks.mutex("alone").lock().await.unwrap().release().await.unwrap();
    let scripts = if crowded.server.own_delete().await.is_some() { 1 } else { 2 };
    assert_eq!((runs(&crowded.server).await, calls(&crowded.server, "time").await), (scripts, 1));
}

/// One thread, on which a task that is started has the next turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_first_of_a_crowd_of_tasks_are_sent_while_the_others_get_ready() {
    let Some(crowded) = Crowded::start().await else { return };
    let (locks, before) = (crowded.locks.clone(), runs(&crowded.server).await);
    let crowd = tokio::spawn(async move {
        let ask = |number| {
            let mutex = locks.mutex(name(number)).with_lease(long());
            tokio::spawn(async move { mutex.lock().await.unwrap() })
        };
        let tasks: Vec<_> = (0..CROWD).map(ask).collect();
        join_all(tasks).await.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    });
    let held = crowd.await.unwrap();
    // One by itself, then eight at a time, and more as there are more who ask.
    let scripts = runs(&crowded.server).await - before;
    assert!((5..CROWD as u64 / 2).contains(&scripts), "{scripts} scripts");
    release_all(held).await;
    crowded.server.has_nothing_left().await;
}

/// Tries of these locks, each of which was polled once.
fn begun(mutexes: &[Mutex]) -> Vec<impl Future<Output = Result<Option<MutexGuard>, Error>>> {
    let mut tries: Vec<_> = mutexes.iter().map(|mutex| Box::pin(mutex.try_lock())).collect();
    tries.iter_mut().for_each(|tried| assert!(tried.now_or_never().is_none()));
    tries
}

#[tokio::test]
async fn those_who_come_and_go_while_nothing_can_be_sent_start_no_task_each_time() {
    // More than may be under way at once.
    const ALL: usize = 1_400;
    let Some(crowded) = Crowded::start().await else { return };
    let mutexes: Vec<_> = (0..ALL).map(|number| crowded.locks.mutex(name(number))).collect();
    let unanswered = crowded.proxy.inject(LinkFault::new(Toxic::Hold, Direction::ToClient));
    let (first, tasks) = (begun(&mutexes[..CROWD]), || Handle::current().metrics().num_alive_tasks());
    let mut most = Vec::new();
    let under_way = begun(&mutexes[CROWD..1_100]);
    for _ in 0..12 {
        let others = begun(&mutexes[1_100..]);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        drop(others);
        most.push(tasks());
    }
    assert!(most[11] <= most[2] + 3, "{most:?} tasks");
    drop((first, under_way));
    unanswered.heal().unwrap();
    crowded.are_free().await;
}

#[tokio::test]
async fn one_that_is_denied_is_denied_alone() {
    let Some(crowded) = Crowded::start().await else { return };
    let other = crowded.server.client().await;
    let held = other.mutex(name(7)).with_lease(long()).lock().await.unwrap();
    let foreign = key(&name(9));
    crowded.server.run(&["RPUSH", &foreign, "foreign"]).await;
    let outcomes = crowded.try_each().await;
    for (number, outcome) in outcomes.into_iter().enumerate() {
        match (number, outcome) {
            (7, outcome) => assert!(outcome.unwrap().is_none()),
            (9, outcome) => assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Protocol),
            (_, outcome) => outcome.unwrap().expect("it is free").release().await.unwrap(),
        }
    }
    held.release().await.unwrap();
    crowded.server.run(&["DEL", &foreign]).await;
    crowded.are_free().await;
}

#[tokio::test]
async fn a_batch_whose_reply_is_lost_is_asked_for_again_and_keeps_nothing() {
    let Some(crowded) = Crowded::start().await else { return };
    for direction in [Direction::ToServer, Direction::ToClient] {
        // In the middle of what asks for it, or of what grants it.
        let toxic = Toxic::CutAfter { bytes: 700 };
        let cut = crowded.proxy.inject(LinkFault::new(toxic.clone(), direction).on_request(1, name(CROWD - 1)));
        let held = soon("all are granted", PROMPTLY, crowded.all()).await;
        cut.heal().unwrap();
        let cut = crowded.proxy.inject(LinkFault::new(toxic, direction).on_request(1, name(CROWD - 1)));
        let released = join_all(held.into_iter().map(MutexGuard::release));
        for outcome in soon("all are released", PROMPTLY, released).await {
            if let Err(error) = outcome {
                assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error:?}");
            }
        }
        cut.heal().unwrap();
        crowded.are_free().await;
    }
}

#[tokio::test]
async fn a_batch_that_is_never_answered_leaves_each_outcome_unknown() {
    let Some(crowded) = Crowded::start().await else { return };
    let held_up = crowded.proxy.inject(LinkFault::new(Toxic::Blackhole, Direction::ToClient));
    let outcomes = soon("all end", PROMPTLY, crowded.try_each()).await;
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert!(error.kind() == ErrorKind::Indeterminate && !error.is_definite(), "{error:?}");
    }
    held_up.heal().unwrap();
    crowded.are_free().await;
}

/// The thread stands still from when all have asked until their time is over. The first one, which was sent by itself, is not
/// polled before its answer is there.
#[tokio::test]
async fn what_has_no_time_left_when_its_batch_is_due_is_not_sent_and_told_so() {
    let Some(crowded) = Crowded::start().await else { return };
    let before = runs(&crowded.server).await;
    let mutexes: Vec<_> = (0..CROWD).map(|i| crowded.locks.mutex(name(i)).with_lease(long())).collect();
    let mut first = Box::pin(mutexes[0].try_lock());
    assert!((&mut first).now_or_never().is_none());
    let others = join_all(mutexes[1..].iter().map(Mutex::try_lock));
    let stands_still = async { std::thread::sleep(ClientOptions::default().op_timeout + ms(1)) };
    for outcome in join(others, stands_still).await.0 {
        let error = outcome.expect_err("it had no time");
        assert!(error.kind() == ErrorKind::Unavailable && error.is_definite(), "{error:?}");
    }
    assert!(runs(&crowded.server).await <= before + 1, "somebody's request was sent");
    drop(first);
    crowded.are_free().await;
}

#[tokio::test]
async fn a_batch_that_is_refused_is_asked_for_one_by_one() {
    let Some(crowded) = Crowded::start().await else { return };
    for refusal in ["OOM command not allowed when used memory > 'maxmemory'.", "MOVED 7 127.0.0.1:1", "BUSY a script"] {
        let toxic = Toxic::Answer { text: refusal.to_owned() };
        let refused = crowded.proxy.inject(LinkFault::new(toxic, Direction::ToServer).on_request(1, name(CROWD - 1)));
        let held = soon("all are granted", PROMPTLY, crowded.all()).await;
        refused.heal().unwrap();
        release_all(held).await;
        assert!(crowded.server.say("SCRIPT FLUSH").await.is_ok());
        release_all(soon("all are granted", PROMPTLY, crowded.all()).await).await;
        crowded.server.has_nothing_left().await;
    }
    crowded.are_free().await;
}

/// Drops every third of these futures after so many polls, and waits for the others.
async fn some_are_dropped<F: Future>(futures: Vec<F>, polls: usize) -> Vec<F::Output> {
    let drops = futures.into_iter().enumerate().map(|(number, future)| async move {
        let (mut future, mut polled) = (pin!(future), 0);
        poll_fn(|cx| {
            if number % 3 == 0 && polled == polls {
                return Poll::Ready(None);
            }
            polled += 1;
            match future.as_mut().poll(cx) {
                Poll::Pending if number % 3 == 0 && polled == polls => Poll::Ready(None),
                polled => polled.map(Some),
            }
        })
        .await
    });
    join_all(drops).await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_dropped_leaves_its_batch_or_is_undone_and_its_neighbours_notice_nothing() {
    let Some(crowded) = Crowded::start().await else { return };
    for (polls, refused) in [(1, false), (2, false), (1, true), (2, true)] {
        if refused {
            assert!(crowded.server.say("SCRIPT FLUSH").await.is_ok());
        }
        let mutexes: Vec<_> = (0..CROWD).map(|i| crowded.locks.mutex(name(i)).with_lease(long())).collect();
        let held: Vec<_> = some_are_dropped(mutexes.iter().map(lock_redis::Mutex::lock).collect(), polls)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert!(held.len() >= CROWD / 3 * 2 - 1, "{} of {CROWD}", held.len());
        assert!(held.iter().all(|guard| guard.is_held()));
        let other = crowded.server.client().await;
        for number in (0..CROWD).filter(|number| held.iter().all(|guard| guard.name().as_str() != name(*number))) {
            obtain(&other, name(number), ms(3000)).await.release().await.unwrap();
        }
        let released = some_are_dropped(held.into_iter().map(MutexGuard::release).collect(), polls).await;
        assert!(released.into_iter().all(|outcome| outcome.is_ok()));
        crowded.are_free().await;
    }
}

/// Its caller may be busy otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_polled_no_more_holds_up_nobody() {
    let Some(crowded) = Crowded::start().await else { return };
    let mutexes: Vec<_> = (0..3).map(|i| crowded.locks.mutex(name(i)).with_lease(long())).collect();
    let mut futures: Vec<_> = mutexes.iter().map(|mutex| Box::pin(mutex.lock())).collect();
    let last = futures.pop().unwrap();
    for future in &mut futures {
        assert!(future.now_or_never().is_none());
    }
    let held = soon("the last one is granted", PROMPTLY, last).await.unwrap();
    held.release().await.unwrap();
    drop(futures);
    crowded.are_free().await;
}
