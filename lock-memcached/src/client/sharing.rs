//! The connection that callers share: on the runtime on which several of them ask at the same time.
//!
//! A request that is alone goes over a connection of its own, which costs it least. It is for those beside it that there is a
//! shared one. There is one at a time, so that it is counted among the client's connections without keeping others from theirs,
//! also when its runtime stands still.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::clock::BootInstant;
use tokio::runtime::Id;
use tokio::sync::Notify;

use super::shared::SharedConnection;

/// A client's shared connection, and its requests that are under way.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    under_way: AtomicUsize,
    slot: Mutex<Slot>,
    /// Tells that the connection is open, or could not be opened.
    settled: Notify,
}

/// The place of the one shared connection.
#[derive(Debug, Default)]
enum Slot {
    #[default]
    Free,
    Opening(Id),
    Open(Id, SharedConnection),
    /// Nobody uses it any more, and what was sent is being read to its end.
    Closing,
    /// It could not be opened, and is not tried again before then.
    Failed(BootInstant),
}

/// The right to open the shared connection and to serve it. The place is free again when this is dropped, with its task or with
/// that one's runtime.
#[derive(Debug)]
pub(super) struct SharingRight(Arc<Sharing>);

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
    /// None: the caller opens one.
    Wanted(SharingRight),
    /// None, but one is being opened.
    Opening,
    /// None now.
    Nothing,
}

impl Sharing {
    /// A request begins.
    pub(super) fn enters(&self) -> UnderWay<'_> {
        let before = self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay { all: &self.under_way, is_alone: before == 0 }
    }

    /// Looks for the connection of a runtime.
    pub(super) fn find(self: &Arc<Self>, runtime: Id, now: BootInstant) -> Found {
        let mut slot = self.slot();
        match &*slot {
            Slot::Open(id, connection) if *id == runtime && connection.is_open() => Found::Open(connection.clone()),
            Slot::Opening(id) if *id == runtime => Found::Opening,
            Slot::Failed(until) if now < *until => Found::Nothing,
            Slot::Open(..) | Slot::Opening(_) | Slot::Closing => Found::Nothing,
            Slot::Free | Slot::Failed(_) => {
                *slot = Slot::Opening(runtime);
                Found::Wanted(SharingRight(self.clone()))
            }
        }
    }

    /// Resolves when a connection that is being opened from now on is open, or could not be opened.
    pub(super) fn settled(&self) -> impl Future<Output = ()> + '_ {
        self.settled.notified()
    }

    /// Nothing more goes over the connection that there is.
    pub(super) fn close(&self) {
        let mut slot = self.slot();
        if matches!(&*slot, Slot::Open(..)) {
            *slot = Slot::Closing;
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharingRight {
    /// The connection is open.
    pub(super) fn opened(&self, runtime: Id, connection: SharedConnection) {
        *self.0.slot() = Slot::Open(runtime, connection);
        self.0.settled.notify_waiters();
    }

    /// The connection could not be opened, and is not tried again before `until`.
    pub(super) fn failed(&self, until: BootInstant) {
        *self.0.slot() = Slot::Failed(until);
    }
}

impl Drop for SharingRight {
    fn drop(&mut self) {
        let mut slot = self.0.slot();
        if !matches!(&*slot, Slot::Failed(_)) {
            *slot = Slot::Free;
        }
        drop(slot);
        self.0.settled.notify_waiters();
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
