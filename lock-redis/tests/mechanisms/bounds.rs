//! A thousand calls at once to servers that stand still: how many outlast their bound (K7).

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_redis::{ClientOptions, Mutex};

/// The time that a busy machine may add. One operation timeout too many would add twice as much.
const SLACK: Duration = Duration::from_secs(1);
const OP_TIMEOUT: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(3);
const WAIT: Duration = Duration::from_millis(700);
/// As long as all of them take to be in the queue, and longer.
const LONG_WAIT: Duration = Duration::from_secs(3);

pub(crate) fn options() -> ClientOptions {
    let mut options = ClientOptions::default();
    (options.op_timeout, options.patience) = (OP_TIMEOUT, PATIENCE);
    options
}

/// Asks for a lock that is held, and for locks that nobody has: waits that begin before the servers are stopped, as soon as all
/// of them are seen in the queue, and tries and waits that begin afterwards.
pub(crate) async fn a_thousand_calls_end_in_time(mutex: impl Fn(String) -> Mutex, stop: impl AsyncFnOnce()) {
    let held = mutex("held".to_owned()).lock().await.unwrap();
    let ask = |number: u32| {
        let name = if number.is_multiple_of(3) { "held".to_owned() } else { format!("free/{}", number % 7) };
        let (mutex, kind) = (mutex(name), number / 250);
        async move {
            let began = Instant::now();
            let (outcome, bound) = match kind {
                0 => (mutex.try_lock_for(LONG_WAIT).await, LONG_WAIT + OP_TIMEOUT),
                1 => (mutex.try_lock().await, OP_TIMEOUT),
                2 => (mutex.try_lock_for(WAIT).await, WAIT + OP_TIMEOUT),
                _ => (mutex.lock().await.map(Some), PATIENCE + OP_TIMEOUT),
            };
            // Before the servers were stopped some had a free lock for a moment.
            drop(outcome);
            began.elapsed().saturating_sub(bound)
        }
    };
    let mut asked: Vec<_> = (0..250).map(|number| tokio::spawn(ask(number))).collect();
    stop().await;
    asked.extend((250..1000).map(|number| tokio::spawn(ask(number))));
    let late: Vec<_> = join_all(asked).await.into_iter().map(Result::unwrap).collect();
    println!("the latest of 1,000 calls ended {:?} after its bound", late.iter().max().unwrap());
    let beyond = late.iter().filter(|late| **late > SLACK).count();
    assert_eq!(beyond, 0, "of 1,000 calls so many outlasted their bound");
    drop(held);
}
