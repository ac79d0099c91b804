//! A client that drops its futures: each one after its first poll, then after its second, until it completes before.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use lock_redis::{Mutex, MutexGuard};
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::sleep;

use crate::beliefs::Beliefs;
use crate::client::{TTL, closed, connect, rng};
use crate::clock::now;
use crate::company::Company;
use crate::record::Record;

/// Within this a lock whose acquisition or release was dropped is free for the next one. Less than the TTL: it is given
/// back, rather than left to end.
const SOON: Duration = Duration::from_millis(1000);

const DROPPER: &str = "the dropper";
const RIVAL: &str = "its rival";

/// The call that is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    TakeFree,
    TakeHeld,
    Extend,
    Release,
}

/// The await at which it is dropped.
#[derive(Debug, Clone, Copy)]
struct When {
    /// After so many polls.
    polls: usize,
    /// Not at once, but when it has been woken, and there is something that it has not seen yet.
    woken: bool,
}

/// One who drops, and a rival that wants the same lock afterwards, each with a client of its own on one host.
pub(crate) struct Dropper {
    number: usize,
    record: Record,
    beliefs: Beliefs,
    rng: StdRng,
    seed: u64,
}

impl Dropper {
    pub(crate) fn new(number: usize, seed: u64, record: &Record, beliefs: &Beliefs) -> Self {
        Self { number, record: record.clone(), beliefs: beliefs.clone(), rng: rng(number, seed), seed }
    }

    /// Everything that it does.
    pub(crate) async fn work(mut self) {
        let (clients, name) = ([connect().await, connect().await], "dropped");
        let company = Company::of(&clients[0], self.number, self.seed, &self.record);
        let [mutex, rival] = clients.each_ref().map(|client| client.mutex(name));
        for act in [Act::TakeFree, Act::TakeHeld, Act::Extend, Act::Release] {
            let whens = (1..).flat_map(|polls| [false, true].map(|woken| When { polls, woken }));
            for when in whens {
                let completed = self.round(act, when, &mutex, &rival, &company).await;
                self.succeeds(act, when, &rival).await;
                if completed {
                    break;
                }
            }
        }
        company.leaves().await;
        for client in &clients {
            closed(client.close().await, self.number, Duration::ZERO, &self.record);
        }
    }

    /// One future, dropped or completed; whether it has completed.
    async fn round(&mut self, act: Act, when: When, mutex: &Mutex, rival: &Mutex, company: &Company) -> bool {
        match act {
            Act::TakeFree => {
                company.comes().await;
                let outcome = dropped(when, mutex.lock()).await;
                self.taken(outcome)
            }
            Act::TakeHeld => {
                let held = self.obtain(RIVAL, rival).await;
                let pause = Duration::from_millis(self.rng.random_range(0..200));
                let (outcome, ()) = tokio::join!(dropped(when, mutex.lock()), async {
                    sleep(pause).await;
                    self.beliefs.ended(RIVAL);
                    drop(held);
                });
                self.taken(outcome)
            }
            Act::Extend => {
                let guard = self.obtain(DROPPER, mutex).await;
                let completed = dropped(when, guard.extend(TTL)).await.is_some();
                self.beliefs.still(DROPPER, &guard);
                self.beliefs.ended(DROPPER);
                completed
            }
            Act::Release => {
                let guard = self.obtain(DROPPER, mutex).await;
                self.beliefs.ended(DROPPER);
                company.comes().await;
                dropped(when, guard.release()).await.is_some()
            }
        }
    }

    fn taken(&self, outcome: Option<Result<MutexGuard, lock_redis::Error>>) -> bool {
        if let Some(Ok(guard)) = &outcome {
            self.beliefs.granted(DROPPER, guard);
            self.beliefs.ended(DROPPER);
        }
        outcome.is_some()
    }

    /// The lock is for the next one, soon.
    async fn succeeds(&mut self, act: Act, when: When, rival: &Mutex) {
        let began = now();
        drop(self.obtain(RIVAL, rival).await);
        self.beliefs.ended(RIVAL);
        let waited = now() - began;
        if waited > SOON {
            let what = format!("waited for {waited:?} after {act:?} was dropped ({when:?})");
            self.record.suffered(self.number, began, &what);
        }
    }

    /// The lock, whatever goes wrong meanwhile.
    async fn obtain(&mut self, who: &str, mutex: &Mutex) -> MutexGuard {
        loop {
            let began = now();
            match mutex.lock().await {
                Ok(guard) => {
                    self.beliefs.granted(who, &guard);
                    return guard;
                }
                Err(error) => {
                    let what = format!("({who}) got {:?}", error.kind());
                    self.record.suffered(self.number, began, &what);
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// Returns what a future gives, unless it is dropped before.
async fn dropped<F: Future>(when: When, future: F) -> Option<F::Output> {
    let (mut future, mut polls) = (pin!(future), 0);
    poll_fn(|context| {
        if polls == when.polls {
            return Poll::Ready(None);
        }
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Pending if polls == when.polls && !when.woken => Poll::Ready(None),
            polled => polled.map(Some),
        }
    })
    .await
}
