//! The quickstart's resource, a counter behind a fence, and the record by which the run is judged.
//!
//! Workers in the same process call [`FencedCounter::handle`]; workers in other processes say the same things as lines of JSON
//! over a socket. [`Caller`] hides the difference.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lock_core::FencingToken;
use lock_core::clock::{Clock, SystemClock};
use lock_core::fence::{FenceGate, Stale};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A worker's message to the counter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Say {
    /// The lock is mine.
    Granted {
        /// The number of the worker.
        worker: u32,
        /// The grant's token.
        token: FencingToken,
        /// The time that it took.
        waited: Duration,
        /// The time after the call had returned; see [`now`].
        at: Duration,
    },
    /// Asks for the counter's value.
    Read {
        /// The grant's token: reads present it too.
        token: FencingToken,
    },
    /// Set the counter to this.
    Write {
        /// The grant's token.
        token: FencingToken,
        /// The new value.
        value: u64,
        /// The time at which the worker last looked and still held the lock, if it looked at all.
        held_at: Option<Duration>,
    },
    /// The lock is gone.
    Lost {
        /// The grant's token.
        token: FencingToken,
        /// The reason of the loss.
        reason: String,
    },
}

/// The counter's reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// Go on.
    Go,
    /// Stall for this long, as a program does when its machine is suspended.
    Stall(Duration),
    /// The counter's value.
    Value(u64),
    /// The token is too old, nothing was read or written.
    Refused,
}

/// Time since the machine was started: one clock for all processes.
#[must_use]
pub(crate) fn now() -> Duration {
    SystemClock.now().since_origin()
}

/// The grants that do not end well.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// The holder of this grant is killed.
    pub kill: usize,
    /// The holder of this grant stalls.
    pub stall: usize,
    /// The length of the stall.
    pub stall_for: Duration,
}

/// The counter, its fence, and the record.
#[derive(Debug)]
pub(crate) struct FencedCounter {
    gate: FenceGate,
    plan: Plan,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counter: u64,
    /// Writes that were confirmed to a worker.
    confirmed: u64,
    refused: u64,
    grants: Vec<Tenure>,
    killed_at: Option<Instant>,
    kill: HashMap<u32, oneshot::Sender<()>>,
}

/// One grant, with the time for which its worker surely believed in it.
#[derive(Debug, Clone, Copy)]
struct Tenure {
    worker: u32,
    token: FencingToken,
    waited: Duration,
    from: Duration,
    to: Duration,
}

/// The run's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The number of grants.
    pub grants: usize,
    /// The longest wait of all grants.
    pub longest_wait: Duration,
    /// Pairs of workers that believed at one instant that they held the lock.
    pub overlaps: usize,
    /// Confirmed increments that the counter does not show.
    pub lost_updates: u64,
    /// Writes that came too late and were refused.
    pub refused: u64,
}

impl Verdict {
    /// Whether the lock kept its promise.
    #[must_use]
    pub(crate) fn is_clean(&self) -> bool {
        self.overlaps == 0 && self.lost_updates == 0
    }
}

impl FencedCounter {
    /// A counter at zero.
    #[must_use]
    pub(crate) fn new(plan: Plan) -> Arc<Self> {
        Arc::new(Self { gate: FenceGate::new(), plan, began: Instant::now(), state: Mutex::default() })
    }

    /// Resolves when this worker is to be killed.
    #[must_use]
    pub(crate) fn enlist(&self, worker: u32) -> oneshot::Receiver<()> {
        let (kill, killed) = oneshot::channel();
        self.state().kill.insert(worker, kill);
        killed
    }

    /// Answers; `None` to a worker that will not live to hear it.
    pub(crate) fn handle(&self, say: Say) -> Option<Reply> {
        // Gate and counter change in one critical section, as they would in one transaction of a database.
        let mut state = self.state();
        match say {
            Say::Granted { worker, token, waited, at } => {
                state.grants.push(Tenure { worker, token, waited, from: at, to: at });
                self.receive(&mut state, worker)
            }
            Say::Read { token } => Some(match self.gate.admit_exclusive(token) {
                Ok(()) => Reply::Value(state.counter),
                Err(stale) => self.refuse(&mut state, "read", stale),
            }),
            Say::Write { token, value, held_at } => {
                if let (Some(tenure), Some(held_at)) = (state.tenure(token), held_at) {
                    tenure.to = tenure.to.max(held_at);
                }
                Some(match self.gate.admit_exclusive(token) {
                    Ok(()) => {
                        let what = format!("{} -> {value}", state.counter);
                        state.counter = value;
                        state.confirmed += 1;
                        self.tell(&mut state, token, &what);
                        Reply::Go
                    }
                    Err(stale) => self.refuse(&mut state, "write", stale),
                })
            }
            Say::Lost { token, reason } => {
                self.tell(&mut state, token, &format!("LOST the lock. release() says: {reason}"));
                Some(Reply::Go)
            }
        }
    }

    /// Answers the workers of other processes, until it is dropped.
    ///
    /// # Errors
    /// If the listener fails.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener) -> io::Result<()> {
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(self.clone().attend(stream));
        }
    }

    async fn attend(self: Arc<Self>, stream: TcpStream) -> io::Result<()> {
        let mut wire = Wire::new(stream);
        while let Some(say) = wire.hear().await? {
            if let Some(reply) = self.handle(say) {
                wire.tell(&reply).await?;
            }
        }
        Ok(())
    }

    /// Judges the run.
    #[must_use]
    pub(crate) fn verdict(&self) -> Verdict {
        let mut state = self.state();
        state.grants.sort_by_key(|tenure| tenure.from);
        let grants = &state.grants;
        let overlapping = |(i, first): (usize, &Tenure)| {
            grants[i + 1..].iter().filter(|next| next.worker != first.worker && next.from < first.to).count()
        };
        Verdict {
            grants: grants.len(),
            longest_wait: grants.iter().map(|tenure| tenure.waited).max().unwrap_or_default(),
            overlaps: grants.iter().enumerate().map(overlapping).sum(),
            lost_updates: state.confirmed.saturating_sub(state.counter),
            refused: state.refused,
        }
    }

    /// A worker has come with a new grant: send it on, or to its fate.
    fn receive(&self, state: &mut State, worker: u32) -> Option<Reply> {
        let Some(Tenure { token, .. }) = state.grants.last().copied() else { return Some(Reply::Go) };
        if let Some(killed_at) = state.killed_at.take() {
            let what = format!("RECOVERED {:.2} s after the kill", killed_at.elapsed().as_secs_f64());
            self.tell(state, token, &what);
        }
        if state.grants.len() == self.plan.kill
            && let Some(kill) = state.kill.remove(&worker)
        {
            self.tell(state, token, "KILLED while it holds the lock: nobody renews, nobody releases");
            state.killed_at = Some(Instant::now());
            // A worker that is gone already needs no killing.
            let _ = kill.send(());
            return None;
        }
        if state.grants.len() == self.plan.stall {
            let what = format!("STALLS for {:.1} s while it holds, past its lease", self.plan.stall_for.as_secs_f64());
            self.tell(state, token, &what);
            return Some(Reply::Stall(self.plan.stall_for));
        }
        Some(Reply::Go)
    }

    fn refuse(&self, state: &mut State, what: &str, stale: Stale) -> Reply {
        state.refused += 1;
        let what = format!("late {what} REFUSED: the counter has seen token {}", stale.seen);
        self.tell(state, stale.token, &what);
        Reply::Refused
    }

    /// One line of the story.
    fn tell(&self, state: &mut State, token: FencingToken, what: &str) {
        let time = self.began.elapsed().as_secs_f64();
        let Some(Tenure { worker, waited, .. }) = state.tenure(token).copied() else { return };
        println!("{time:>6.2} s  worker {worker:<2}  {token:>16}  {:>7} ms  {what}", waited.as_millis());
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tenure(&mut self, token: FencingToken) -> Option<&mut Tenure> {
        self.grants.iter_mut().find(|tenure| tenure.token == token)
    }
}

/// A worker's way to the counter.
#[derive(Debug)]
pub(crate) enum Caller {
    /// In the same process.
    Here(Arc<FencedCounter>),
    /// In another one.
    There(Wire<TcpStream>),
}

impl Caller {
    /// Says something and waits for the answer.
    ///
    /// # Errors
    /// If the counter is gone.
    pub(crate) async fn say(&mut self, say: Say) -> io::Result<Reply> {
        match self {
            Self::Here(counter) => match counter.handle(say) {
                Some(reply) => Ok(reply),
                None => std::future::pending().await,
            },
            Self::There(wire) => {
                wire.tell(&say).await?;
                wire.hear().await?.ok_or_else(|| io::Error::other("the counter is gone"))
            }
        }
    }
}

/// Values as lines of JSON.
#[derive(Debug)]
pub(crate) struct Wire<S>(BufReader<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Over this stream.
    pub(crate) fn new(stream: S) -> Self {
        Self(BufReader::new(stream))
    }

    async fn tell(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.0.write_all(&line).await
    }

    async fn hear<T: for<'de> Deserialize<'de>>(&mut self) -> io::Result<Option<T>> {
        let mut line = String::new();
        if self.0.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { kill: usize::MAX, stall: usize::MAX, stall_for: Duration::ZERO };

    fn token(value: u64) -> FencingToken {
        FencingToken::new(value).unwrap()
    }

    fn granted(worker: u32, value: u64, at: u64) -> Say {
        Say::Granted { worker, token: token(value), waited: Duration::ZERO, at: Duration::from_millis(at) }
    }

    fn write(value: u64, counter: u64, held_at: u64) -> Say {
        Say::Write { token: token(value), value: counter, held_at: Some(Duration::from_millis(held_at)) }
    }

    #[test]
    fn two_that_believe_at_one_instant_are_an_overlap() {
        let counter = FencedCounter::new(PLAN);
        counter.handle(granted(1, 1, 10));
        counter.handle(granted(2, 2, 15));
        counter.handle(write(1, 1, 20));
        assert_eq!(counter.verdict().overlaps, 1);
    }

    #[test]
    fn a_lost_update_is_counted_and_a_refused_one_is_not_lost() {
        let counter = FencedCounter::new(PLAN);
        counter.handle(granted(1, 1, 10));
        counter.handle(write(1, 1, 20));
        counter.handle(granted(2, 2, 30));
        counter.handle(write(2, 1, 40));
        assert!(matches!(counter.handle(write(1, 2, 20)), Some(Reply::Refused)));
        let verdict = counter.verdict();
        assert_eq!((verdict.overlaps, verdict.lost_updates, verdict.refused), (0, 1, 1));
        assert!(!verdict.is_clean());
    }
}
