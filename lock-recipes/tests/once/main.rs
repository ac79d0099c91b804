//! Jobs that run once per slot.

#![cfg(test)]

mod at_least;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::clock::{TokioClock, VirtualClock};
use lock_core::memory::{MemoryConfig, MemoryStore};
use lock_core::{ClientOptions, ErrorKind, Guarantee, LeaseOptions, MemoryLocks};
use lock_recipes::{Attempts, Failures, Once, OnceError, Outcome, Slot};
use lock_testkit::testing::eventually;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(3600);

fn once(locks: &MemoryLocks) -> Once {
    Once::new(locks.recorded("job").unwrap())
}

/// A job that counts its runs.
fn counting(runs: &Arc<AtomicU64>) -> impl FnOnce(lock_core::FencingToken) -> std::future::Ready<u64> + use<> {
    let runs = runs.clone();
    move |_| std::future::ready(runs.fetch_add(1, Ordering::SeqCst) + 1)
}

/// Polls a future until it has nothing more to do for now; its output, if it has ended.
async fn is_at_rest<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    for _ in 0..100 {
        if let Poll::Ready(output) = futures_util::poll!(future.as_mut()) {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

#[tokio::test]
async fn two_timers_run_each_slot_once_however_short_the_job() {
    let store = MemoryStore::new();
    let runs = Arc::new(AtomicU64::new(0));
    let mut skipped = 0;
    for slot in 0..1000 {
        for locks in [store.connect(), store.connect()] {
            match once(&locks).run(slot, counting(&runs)).await.unwrap() {
                Outcome::Ran(number) => assert_eq!(number, slot + 1),
                Outcome::Skipped { slot: begun, by, .. } => {
                    assert_eq!(begun, Slot::from(slot));
                    assert!(by.starts_with("owner@"), "{by}");
                    skipped += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((runs.load(Ordering::SeqCst), skipped), (1000, 1000));
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_ask_at_the_same_time_run_each_slot_once() {
    let store = MemoryStore::new();
    let runs: Arc<Vec<AtomicU64>> = Arc::new((0..300).map(|_| AtomicU64::new(0)).collect());
    let tasks = (0..8).map(|_| {
        let (locks, runs) = (store.connect(), runs.clone());
        tokio::spawn(async move {
            let once = once(&locks).with_wait(Duration::from_secs(60));
            for (slot, count) in (0..).zip(&*runs) {
                let job = |_| async {
                    count.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                };
                let outcome = once.run(slot, job).await.unwrap();
                assert!(!matches!(outcome, Outcome::Busy(_)), "it was to wait");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    // A process that is ahead has begun later slots: those that it has not run itself are skipped by all.
    assert!(runs.iter().all(|count| count.load(Ordering::SeqCst) <= 1));
    assert_eq!(runs[299].load(Ordering::SeqCst), 1);
}

/// A hundred hand-overs of 40 ms, one behind the other, take 4 s.
#[tokio::test(start_paused = true)]
async fn those_who_wait_for_one_slot_do_not_take_its_lock_one_after_the_other() {
    let store = MemoryStore::with_clock(TokioClock::new());
    let way = Duration::from_millis(20);
    store.set_delay(way, way, 0);
    let runs = Arc::new(AtomicU64::new(0));
    let calls = (0..100).map(|_| {
        let (once, runs) = (once(&store.connect()).with_wait(LONG), runs.clone());
        tokio::spawn(async move {
            let job = |_| async {
                runs.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(5)).await;
                tokio::time::Instant::now()
            };
            let outcome = once.run(1, job).await.unwrap();
            (outcome, tokio::time::Instant::now())
        })
    });
    let (mut ran, mut skipped) = (None, Vec::new());
    for call in calls.collect::<Vec<_>>() {
        match call.await.unwrap() {
            (Outcome::Ran(ended), _) => assert_eq!(ran.replace(ended), None),
            (Outcome::Skipped { .. }, at) => skipped.push(at),
            (other, _) => panic!("{other:?}"),
        }
    }
    assert_eq!((runs.load(Ordering::SeqCst), skipped.len()), (1, 99));
    let last = skipped.into_iter().max().unwrap().duration_since(ran.unwrap());
    assert!(last <= Duration::from_secs(2) + 10 * way, "the last one has learned of it after {last:?}");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_slot_that_is_done_does_not_wait_until_its_lock_is_free() {
    let store = MemoryStore::with_clock(TokioClock::new());
    let (one, other) = (store.connect(), store.connect());
    let kept = once(&one).with_at_least(LONG).unwrap();
    let job = |_| tokio::time::sleep(Duration::from_millis(100));
    let waits = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        once(&other).with_wait(LONG * 2).run(1, |_| async {}).await
    };
    let began = tokio::time::Instant::now();
    let (ran, skipped) = tokio::join!(kept.run(1, job), waits);
    assert_eq!(ran.unwrap(), Outcome::Ran(()));
    assert!(matches!(skipped, Ok(Outcome::Skipped { .. })), "{skipped:?}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    // The dropped wait has left nothing: only the job's lock is there.
    assert_eq!(other.mutex("job").inspect().await.unwrap().waiter_count(), 0);
}

#[tokio::test]
async fn a_slot_that_is_older_than_the_latest_is_skipped() {
    let locks = MemoryLocks::new();
    let runs = Arc::new(AtomicU64::new(0));
    // Numbers, not texts: 9 is before 10.
    for (slot, runs_then) in [(9_u64, 1), (10, 2), (9, 2), (10, 2), (100, 3), (99, 3)] {
        once(&locks).run(slot, counting(&runs)).await.unwrap();
        assert_eq!(runs.load(Ordering::SeqCst), runs_then, "after slot {slot}");
    }
}

#[tokio::test]
async fn whoever_finds_somebody_at_it_is_told_who() {
    let store = MemoryStore::new();
    let (first, second) = (store.connect(), store.connect());
    let second = once(&second);
    let busy = once(&first).run(1, |_| async { second.run(1, |_| async {}).await.unwrap() }).await.unwrap();
    let Some(Outcome::Busy(Some(holder))) = busy.ran() else { panic!("somebody is at it") };
    assert_eq!(holder.owner.as_ref(), Some(first.owner()));
}

/// Somebody else has the lock by then, and is at nothing.
#[tokio::test]
async fn whoever_waited_in_vain_is_told_of_a_slot_that_was_done_meanwhile() {
    let clock = VirtualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let (one, other, third) = (store.connect(), store.connect(), store.connect());
    let (one, recorded) = (once(&one), third.recorded("job").unwrap());
    let wait = Duration::from_secs(1);
    let other = once(&other).with_wait(wait);
    let (end, ended) = tokio::sync::oneshot::channel();
    let mut run = pin!(one.run(1, |_| ended));
    assert!(is_at_rest(run.as_mut()).await.is_none());
    let mut next = pin!(recorded.lock());
    assert!(is_at_rest(next.as_mut()).await.is_none());
    let mut waits = pin!(other.run(1, async |_| unreachable!("it is run already")));
    assert!(is_at_rest(waits.as_mut()).await.is_none());
    end.send(()).unwrap();
    assert_eq!(run.await.unwrap(), Outcome::Ran(Ok(())));
    let held = next.await.unwrap();
    clock.advance(wait);
    let outcome: Outcome<()> = is_at_rest(waits.as_mut()).await.expect("its wait is over").unwrap();
    assert!(matches!(outcome, Outcome::Skipped { .. }), "{outcome:?}");
    held.release().await.unwrap();
}

/// The process ends before its nth step.
#[tokio::test]
async fn whoever_crashes_at_any_step_has_run_it_once_at_most_or_it_is_run_again() {
    for attempts in [Attempts::AtMostOnce, Attempts::AtLeastOnce] {
        let mut finished = false;
        for steps in 0..200 {
            let store = MemoryStore::new();
            store.set_delay(Duration::from_micros(1), Duration::from_micros(2), steps);
            let (crashing, next) = (store.connect(), store.connect());
            let (begun, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let job = |_| {
                let (begun, ended) = (begun.clone(), ended.clone());
                async move {
                    begun.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    ended.fetch_add(1, Ordering::SeqCst);
                }
            };
            let crashed = once(&crashing).with_attempts(attempts);
            finished = polled(steps, crashed.run(1, job)).await;
            crashing.close().await.unwrap();
            let again = once(&next).with_attempts(attempts).with_wait(Duration::from_secs(10));
            again.run(1, job).await.unwrap();
            let (begun, ended) = (begun.load(Ordering::SeqCst), ended.load(Ordering::SeqCst));
            match attempts {
                Attempts::AtMostOnce => assert!(begun <= 1, "begun {begun} times, crashed before step {steps}"),
                _ => assert!(ended >= 1, "never done, crashed before step {steps}"),
            }
            if finished {
                break;
            }
        }
        assert!(finished, "the last step was never reached");
    }
}

/// Polls a future so many times, and drops it; whether it had ended.
async fn polled(times: u64, future: impl Future) -> bool {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|cx| {
        if polls == times {
            return Poll::Ready(false);
        }
        polls += 1;
        future.as_mut().poll(cx).map(|_| true)
    })
    .await
}

#[tokio::test]
async fn a_job_whose_lock_is_lost_is_dropped_and_records_nothing() {
    let store = MemoryStore::new();
    let locks = store.connect();
    let job = async || {
        store.lose("job");
        tokio::time::sleep(Duration::from_secs(60)).await;
    };
    let lost = once(&locks).run(1, |_| job()).await;
    let Err(OnceError::Dropped(error)) = lost else { panic!("the lock was lost") };
    assert_eq!((error.kind(), error.name()), (ErrorKind::Lost, Some("job")));
    let runs = Arc::new(AtomicU64::new(0));
    let most = once(&locks).run(1, counting(&runs)).await.unwrap();
    assert!(matches!(most, Outcome::Skipped { .. }), "{most:?}");
    let least = once(&locks).with_attempts(Attempts::AtLeastOnce).run(1, counting(&runs)).await.unwrap();
    assert_eq!(least, Outcome::Ran(1));
}

#[tokio::test]
async fn a_value_whose_end_could_not_be_recorded_comes_back() {
    let store = MemoryStore::new();
    let locks = store.connect();
    let job = async || {
        store.set_reachable(false);
        "receipt"
    };
    let error = once(&locks).run(1, |_| job()).await.unwrap_err();
    assert!(
        matches!(&error, OnceError::NotRecorded { source, .. } if source.kind() == ErrorKind::Unavailable),
        "{error:?}"
    );
    assert_eq!(error.into_value(), Some("receipt"));
    // Its end came together with the loss.
    store.set_reachable(true);
    let job = async || {
        store.lose("job");
        "receipt"
    };
    // The first one's lock is released in the background.
    let waiting = once(&locks).with_wait(Duration::from_secs(30));
    assert_eq!(waiting.run(2, |_| job()).await.unwrap_err().into_value(), Some("receipt"));
}

/// A server that starts anew refuses for a while, and the lock is still held then.
#[tokio::test]
async fn an_end_that_no_server_takes_down_at_first_is_recorded_when_one_does() {
    let store = MemoryStore::new();
    let (one, other) = (store.connect(), store.connect());
    let job = async || {
        store.set_reachable(false);
        let store = store.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            store.set_reachable(true);
        });
        "receipt"
    };
    assert_eq!(once(&one).run(1, |_| job()).await.unwrap(), Outcome::Ran("receipt"));
    let least = once(&other).with_attempts(Attempts::AtLeastOnce);
    let again = least.run(1, |_| async { "twice" }).await.unwrap();
    assert!(matches!(again, Outcome::Skipped { .. }), "{again:?}");
}

#[tokio::test]
async fn what_is_forgotten_is_run_again_and_by_everybody() {
    let store = MemoryStore::new();
    let (one, other) = (store.connect(), store.connect());
    let (wrong, right) = (209_900_u64, 202_600_u64);
    once(&one).run(wrong, |_| async {}).await.unwrap();
    let skipped = once(&other).run(right, |_| async {}).await.unwrap();
    assert!(matches!(skipped, Outcome::Skipped { slot, .. } if slot == Slot::from(wrong)), "{skipped:?}");
    let at_it = once(&one).run(wrong + 1, |_| async { once(&other).forget().await.unwrap() }).await.unwrap();
    assert_eq!(at_it, Outcome::Ran(false), "somebody is at it");
    assert!(once(&other).forget().await.unwrap());
    assert_eq!(once(&one).run(right, |_| async {}).await.unwrap(), Outcome::Ran(()));
    assert!(matches!(once(&other).run(right, |_| async {}).await.unwrap(), Outcome::Skipped { .. }));
    assert_eq!(store.used(), 0);
}

#[tokio::test]
async fn a_promise_that_is_missing_is_refused_by_name() {
    let locks = MemoryLocks::new();
    let refused = once(&locks).with_required(&[Guarantee::Record, Guarantee::RecordAcrossRestart]).unwrap_err();
    assert_eq!((refused.kind(), refused.name()), (ErrorKind::Unsupported, Some("job")), "{refused}");
    let what = refused.to_string();
    assert!(what.contains("RecordAcrossRestart") && !what.contains("Record (yes)"), "{what}");
    assert!(once(&locks).with_required(&[Guarantee::Record]).is_ok());
}

#[tokio::test]
async fn nothing_runs_while_the_server_does_not_answer() {
    let store = MemoryStore::new();
    let locks = store.connect();
    store.set_reachable(false);
    let runs = Arc::new(AtomicU64::new(0));
    let error = once(&locks).run(1, counting(&runs)).await.unwrap_err();
    assert!(matches!(error, OnceError::NotRun(_)), "{error:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_failure_counts_or_is_run_again() {
    for failures in [Failures::Count, Failures::RunAgain] {
        let locks = MemoryLocks::new();
        let once = once(&locks).with_failures(failures);
        let failed = once.try_run(1, |_| async { Err::<u32, _>("no paper") }).await.unwrap();
        assert_eq!(failed, Outcome::Ran(Err("no paper")));
        let again = once.try_run(1, |_| async { Ok::<_, &str>(7) }).await.unwrap();
        assert_eq!(again.ran(), (failures == Failures::RunAgain).then_some(Ok(7)));
    }
}

#[tokio::test]
async fn a_panic_is_recorded_and_goes_on() {
    for failures in [Failures::Count, Failures::RunAgain] {
        let locks = MemoryLocks::new();
        let once = once(&locks).with_failures(failures);
        let job = |_| async { panic!("no paper") };
        let panicked = std::panic::AssertUnwindSafe(once.run::<(), _, _>(1, job)).catch_unwind().await;
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"no paper"));
        let free = locks.mutex("job").try_lock().await.unwrap().expect("its lock was released");
        free.release().await.unwrap();
        let again = once.run(1, |_| async { 7 }).await.unwrap();
        assert_eq!(again.ran(), (failures == Failures::RunAgain).then_some(7));
    }
}

#[tokio::test]
async fn a_slot_that_is_done_costs_one_read_and_no_lock() {
    let store = MemoryStore::new();
    let locks = store.connect();
    once(&locks).run(1, |_| async {}).await.unwrap();
    // Somebody has the lock for another reason: whoever would ask for it were busy.
    let held = locks.mutex("job").lock().await.unwrap();
    assert!(matches!(once(&locks).run(1, |_| async {}).await.unwrap(), Outcome::Skipped { .. }));
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_foreign_record_is_an_error_and_stays() {
    let locks = MemoryLocks::new();
    let foreign = locks.recorded("job").unwrap();
    let held = foreign.lock().await.unwrap();
    held.write(b"somebody else's").await.unwrap();
    held.release().await.unwrap();
    let error = once(&locks).run(1, |_| async {}).await.unwrap_err();
    assert!(matches!(&error, OnceError::NotRun(error) if error.kind() == ErrorKind::Protocol), "{error:?}");
    assert_eq!(error.error().name(), Some("job"), "{error:?}");
    assert_eq!(foreign.read().await.unwrap().unwrap().data, b"somebody else's");
}

/// The holder stands still past its lease, and goes on when another one has run the slot.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_paused_past_its_lease_records_nothing() {
    let store = MemoryStore::new();
    let mut client = ClientOptions::default();
    client.lease = LeaseOptions::new(Duration::from_millis(300)).with_auto_renew(false);
    let paused = store.connect_with(MemoryConfig::default().with_client(client)).unwrap();
    let next = store.connect();
    let job = async || {
        // As a process that is stopped: its thread does nothing else.
        tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(400)));
        eventually("the next one runs it again", Duration::from_secs(10), async || {
            let again = once(&next).with_attempts(Attempts::AtLeastOnce);
            matches!(again.run(2, |_| async {}).await, Ok(Outcome::Ran(())))
        })
        .await;
        "too late"
    };
    let late = once(&paused).with_attempts(Attempts::AtLeastOnce).run(1, |_| job()).await;
    assert!(matches!(late, Err(OnceError::Dropped(_) | OnceError::NotRecorded { .. })), "{late:?}");
    let seen = once(&next).run(2, |_| async {}).await.unwrap();
    assert!(
        matches!(seen, Outcome::Skipped { slot, .. } if slot == Slot::from(2)),
        "the late one has written: {seen:?}"
    );
}

/// A record that is still asked for does not end with its retention, or its job would run again.
#[tokio::test]
async fn a_skip_refreshes_a_record_that_is_old() {
    let locks = MemoryLocks::new();
    let recorded = locks.recorded("rare").unwrap();
    let guard = recorded.lock().await.unwrap();
    guard.write(br#"{"slot":7,"stage":"done","by":"somebody","at":1000}"#).await.unwrap();
    guard.release().await.unwrap();
    let once = Once::new(recorded.clone());
    let skipped = once.run(7, async |_| unreachable!("it is done")).await.unwrap();
    assert!(matches!(skipped, Outcome::Skipped { .. }), "{skipped:?}");
    let record: serde_json::Value = serde_json::from_slice(&recorded.read().await.unwrap().unwrap().data).unwrap();
    assert_eq!((&record["slot"], &record["by"], &record["at"]), (&7.into(), &"somebody".into(), &1000.into()));
    assert!(record["refreshed"].as_u64() > Some(1_000_000), "{record}");
}
