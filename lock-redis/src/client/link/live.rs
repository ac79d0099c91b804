//! A connection that is in use, and the turns of the requests that go over it.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::clock::{BootInstant, Clock, SystemClock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use crate::address::Address;
use crate::client::compare_delete::CompareDelete;
use crate::client::dial::Commands;
use crate::client::loading::Loading;
use crate::client::pulse::Pulse;

pub(crate) const CROWDED: &str = "too many requests of this client wait for their turn";
pub(crate) const NO_TIME: &str = "no time was left to send the request";

/// The turn of a request on a connection.
#[derive(Debug)]
pub(in crate::client) enum SendTurn {
    /// The turn has come, and lasts until this is dropped.
    Now(OwnedSemaphorePermit),
    /// The connection was given up before.
    Ended,
    /// The turn has not come in time, because of this.
    Never(&'static str),
}

/// A connection that is in use. A clone is the same one.
#[derive(Debug, Clone)]
pub(in crate::client) struct Live {
    pub(super) state: Arc<LiveState>,
    pub(in crate::client) commands: Commands,
}

/// The state of a connection that is in use, beside the connection itself.
#[derive(Debug)]
pub(in crate::client) struct LiveState {
    pub(in crate::client) generation: u64,
    pub(in crate::client) server: Address,
    pub(super) since: BootInstant,
    pub(super) pulse: Mutex<Pulse>,
    pub(in crate::client) loading: Loading,
    pub(super) turns: Arc<Semaphore>,
    /// The server's own compare-and-delete, if it has one.
    pub(super) compare_delete: Option<CompareDelete>,
    /// The number of requests that wait for their replies.
    pub(super) owed: AtomicUsize,
    /// Whether a word was asked for behind them, and has not come.
    pub(super) asks_word: AtomicBool,
}

impl Deref for Live {
    type Target = LiveState;

    fn deref(&self) -> &LiveState {
        &self.state
    }
}

impl Live {
    /// Waits for the turn of a request that has time until `until`, for half of that at most: the other half is for the answer. One
    /// that has no time left has no turn.
    pub(in crate::client) async fn turn(&self, until: BootInstant) -> SendTurn {
        let now = SystemClock.now();
        // What is sent may be carried out, whether anybody has the time to be told so or not.
        if now >= until {
            return SendTurn::Never(NO_TIME);
        }
        // The usual case costs no timer.
        match self.turns.clone().try_acquire_owned() {
            Ok(turn) => return SendTurn::Now(turn),
            Err(TryAcquireError::Closed) => return SendTurn::Ended,
            Err(TryAcquireError::NoPermits) => {}
        }
        let turn = tokio::select! {
            biased;
            turn = self.turns.clone().acquire_owned() => turn,
            () = SystemClock.sleep_until(now.plus(until.since(now) / 2)) => return SendTurn::Never(CROWDED),
        };
        match turn {
            // This process may have stood still meanwhile.
            Ok(turn) if SystemClock.now() < until => SendTurn::Now(turn),
            Ok(_) => SendTurn::Never(NO_TIME),
            Err(_) => SendTurn::Ended,
        }
    }

    /// Waits for the turn of at least one of so many requests, as [`turn`](Live::turn) does, and takes that of as many as there are
    /// turns for.
    pub(super) async fn turns(&self, wanted: usize, until: BootInstant) -> SendTurn {
        // They are never more than the least that may be on their way.
        let many = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        if let Ok(turns) = self.turns.clone().try_acquire_many_owned(many(wanted)) {
            return SendTurn::Now(turns);
        }
        let outcome = self.turn(until).await;
        let SendTurn::Now(mut turns) = outcome else { return outcome };
        let more = self.turns.available_permits().min(wanted.saturating_sub(1));
        if let Ok(more) = self.turns.clone().try_acquire_many_owned(many(more)) {
            turns.merge(more);
        }
        SendTurn::Now(turns)
    }
}

impl LiveState {
    /// The first moments of a connection to this server, which has just answered.
    pub(super) fn new(
        generation: u64,
        server: Address,
        since: BootInstant,
        pulse: Pulse,
        turns: usize,
        compare_delete: Option<CompareDelete>,
    ) -> Self {
        Self {
            generation,
            server,
            since,
            pulse: Mutex::new(pulse),
            loading: Loading::default(),
            turns: Arc::new(Semaphore::new(turns)),
            compare_delete,
            owed: AtomicUsize::new(0),
            asks_word: AtomicBool::new(false),
        }
    }

    pub(super) fn pulse(&self) -> MutexGuard<'_, Pulse> {
        // Every critical section leaves it valid after each statement.
        self.pulse.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that waits for its reply, counted until this is dropped.
pub(super) struct Owed<'a>(&'a AtomicUsize);

impl<'a> Owed<'a> {
    pub(super) fn one_more(owed: &'a AtomicUsize) -> Self {
        owed.fetch_add(1, Ordering::Relaxed);
        Self(owed)
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
