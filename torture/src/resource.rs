//! The counters that the locks protect. Two refuse old tokens, each by itself, and one takes everything.
//!
//! They live in the run's own process, and write their log down in the order in which they admit.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use lock_core::FencingToken;
use lock_core::fence::FenceGate;
use lock_testkit_checker::history::event::{Access, Text};
use lock_testkit_checker::history::{Recorder, What};
use serde::{Deserialize, Serialize};

use crate::exchange;

/// One of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CounterName {
    /// Looks at tokens.
    Fenced,
    /// Does so, too: one token is good at both.
    AlsoFenced,
    /// Takes everything.
    Unfenced,
}

impl CounterName {
    pub(crate) const ALL: [Self; 3] = [Self::Fenced, Self::AlsoFenced, Self::Unfenced];

    fn name(self) -> &'static str {
        match self {
            Self::Fenced => "fenced counter",
            Self::AlsoFenced => "other fenced counter",
            Self::Unfenced => "unfenced counter",
        }
    }
}

/// A use of a counter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) id: String,
    pub(crate) target: CounterName,
    pub(crate) token: Option<u64>,
    /// Nothing for a read.
    pub(crate) write: Option<u64>,
}

/// The answer: the counter's value, if the use was admitted.
pub(crate) type Value = Option<u64>;

#[derive(Debug, Default)]
struct Counter {
    /// `None` of one that takes everything.
    gate: Option<FenceGate>,
    value: u64,
}

#[derive(Debug)]
struct Counters {
    counters: [(CounterName, Counter); CounterName::ALL.len()],
    log: Recorder,
}

impl Counters {
    fn new(log: Recorder) -> Self {
        let gate = |target| (target != CounterName::Unfenced).then(FenceGate::new);
        Self { counters: CounterName::ALL.map(|target| (target, Counter { gate: gate(target), value: 0 })), log }
    }

    fn admit(&mut self, usage: &Usage) -> Value {
        let (target, counter) = self.counters.iter_mut().find(|(target, _)| *target == usage.target)?;
        let token = usage.token.and_then(FencingToken::new);
        let accepted = match &counter.gate {
            Some(gate) => token.is_some_and(|token| gate.admit_exclusive(token).is_ok()),
            None => true,
        };
        if let (Some(written), true) = (usage.write, accepted) {
            counter.value = written;
        }
        self.log.record(What::Access(Access {
            id: usage.id.as_str().into(),
            target: Text::from(target.name()),
            fenced: counter.gate.is_some(),
            token: usage.token,
            shared: false,
            write: usage.write,
            accepted,
        }));
        accepted.then_some(counter.value)
    }
}

/// Serves the counters as long as the runtime lives; says where.
pub(crate) async fn serve(log: Recorder) -> io::Result<SocketAddr> {
    let counters = Mutex::new(Counters::new(log));
    // One `admit` leaves its data valid after each statement.
    exchange::serve(move |usage: Usage| counters.lock().unwrap_or_else(PoisonError::into_inner).admit(&usage)).await
}
