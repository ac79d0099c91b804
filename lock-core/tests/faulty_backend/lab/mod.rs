//! A memory backend behind a line that can be made to fail, and a count of what was asked.

mod faulty;
mod kinds;
mod line;

use std::time::Duration;

use lock_core::clock::{Clock, VirtualClock};
use lock_core::memory::MemoryStore;
use lock_core::{Client, ClientOptions};

pub(crate) use self::faulty::Faulty;
pub(crate) use self::line::{Fault, Leaves, Line};

/// Lets other tasks run until the claim holds, for at most ten seconds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(10), "not within ten seconds: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A store in virtual time, and a line to it.
#[derive(Debug, Clone)]
pub(crate) struct Lab {
    pub(crate) clock: VirtualClock,
    pub(crate) store: MemoryStore,
    pub(crate) line: Line,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let clock = VirtualClock::new();
        Self { store: MemoryStore::with_clock(clock.clone()), clock, line: Line::default() }
    }

    /// A client over the link.
    pub(crate) fn connect(&self) -> Client<Faulty> {
        let backend = Faulty { inner: self.store.connect(), clock: self.clock.clone(), line: self.line.clone() };
        Client::new(backend, ClientOptions::default()).unwrap()
    }

    /// Moves the clock in steps, so that whoever wakes can go on before the next one.
    pub(crate) async fn pass(&self, time: Duration) {
        let step = Duration::from_millis(50);
        let end = self.clock.now().plus(time);
        while self.clock.now() < end {
            self.clock.advance(step);
            self.settle().await;
        }
    }

    /// Lets whoever is awake go on.
    pub(crate) async fn settle(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
}
