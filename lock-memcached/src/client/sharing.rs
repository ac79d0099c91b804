//! The connections that callers share: one for each runtime on which several of them ask at the same time.
//!
//! A request that is alone goes over a connection of its own, which costs it least. It is for those beside it that there is a
//! shared one, opened in the background; until it is there they have connections of their own too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lock_core::clock::BootInstant;
use tokio::runtime::Id;

use super::shared::SharedConnection;

/// A client's shared connections, and its requests that are under way.
#[derive(Debug, Default)]
pub(super) struct SharedConnections {
    under_way: AtomicUsize,
    slots: Mutex<HashMap<Id, Slot>>,
}

/// The shared connection of one runtime.
#[derive(Debug)]
enum Slot {
    Open(SharedConnection),
    /// None, and no other one is opened before then.
    NotBefore(BootInstant),
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct UnderWay<'a> {
    all: &'a AtomicUsize,
    is_alone: bool,
}

/// A connection for a caller, or none.
#[derive(Debug)]
pub(super) enum Found {
    Open(SharedConnection),
    /// Nothing: the caller opens one, which has to be open by then.
    Wanted,
    /// Nothing now.
    Nothing,
}

impl SharedConnections {
    /// A request begins.
    pub(super) fn enters(&self) -> UnderWay<'_> {
        let before = self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay { all: &self.under_way, is_alone: before == 0 }
    }

    /// Looks for the connection of a runtime. One that is to be opened has until `until` for it.
    pub(super) fn find(&self, runtime: Id, now: BootInstant, until: BootInstant) -> Found {
        let mut slots = self.slots();
        match slots.get(&runtime) {
            Some(Slot::Open(connection)) => return Found::Open(connection.clone()),
            Some(Slot::NotBefore(then)) if now < *then => return Found::Nothing,
            _ => {}
        }
        // Those of runtimes that have ended are forgotten.
        slots.retain(|_, slot| match slot {
            Slot::Open(connection) => connection.is_open(),
            Slot::NotBefore(then) => now < *then,
        });
        slots.insert(runtime, Slot::NotBefore(until));
        Found::Wanted
    }

    /// A connection is open.
    pub(super) fn opened(&self, runtime: Id, connection: SharedConnection) {
        self.slots().insert(runtime, Slot::Open(connection));
    }

    /// No connection can be opened now.
    pub(super) fn failed(&self, runtime: Id) {
        self.slots().remove(&runtime);
    }

    /// The connection with this number is closed.
    pub(super) fn closed(&self, runtime: Id, number: u64) {
        let mut slots = self.slots();
        if matches!(slots.get(&runtime), Some(Slot::Open(connection)) if connection.number() == number) {
            slots.remove(&runtime);
        }
    }

    /// Nothing more goes over the connections that there are.
    pub(super) fn clear(&self) {
        self.slots().clear();
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Id, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnderWay<'_> {
    /// Whether no other request was under way when it began.
    pub(super) fn is_alone(&self) -> bool {
        self.is_alone
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}
