//! The permits that a waiter wants, as they lie ready for a holder of the same process that hands its own over.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lock_core::clock::BootInstant;
use tokio::sync::Notify;

use super::Waiter;
use crate::client::{NewNode, Response};

/// The nodes by which a waiter has its permits.
#[derive(Debug)]
pub(crate) struct PermitNodes {
    pub(crate) permits: u32,
    pub(crate) new: Vec<NewNode>,
    pub(crate) record: Vec<u8>,
}

/// Permits that are being handed over.
pub(crate) struct HandedOver {
    /// The paths of the nodes, once they are made.
    pub(crate) made: Response<'static, Vec<String>>,
    /// Whether the waiter's nodes were to be exchanged before, and it is not known which ones it has.
    pub(crate) was_changing: bool,
    pub(crate) sent_at: BootInstant,
    /// The waiter that was right behind by then.
    pub(crate) next: Option<Waiter>,
}

/// The hand-over of permits to one attempt. A holder takes the nodes before anything is sent, and the waiter closes this before it makes its
/// permits by itself: so one of them makes them.
#[derive(Default)]
pub(crate) struct Incoming {
    state: Mutex<IncomingState>,
    received: Notify,
}

#[derive(Default)]
enum IncomingState {
    #[default]
    None,
    Open(PermitNodes),
    /// A holder has taken the nodes, and is about to hand over.
    Taken,
    Granted(HandedOver),
}

impl Incoming {
    /// Lets a holder hand permits over by these nodes, unless one does so already.
    pub(crate) fn open(&self, nodes: PermitNodes) {
        let mut state = self.state();
        if let IncomingState::None | IncomingState::Open(_) = *state {
            *state = IncomingState::Open(nodes);
        }
    }

    /// Lets no holder hand permits over any more. False if one does so already: then they [come](Incoming::received), or do not.
    pub(crate) fn close(&self) -> bool {
        let mut state = self.state();
        if let IncomingState::Taken | IncomingState::Granted(_) = *state {
            return false;
        }
        *state = IncomingState::None;
        true
    }

    /// Takes the nodes for a holder that has so many permits, if they are enough.
    pub(super) fn take(&self, permits: u32) -> Option<PermitNodes> {
        let mut state = self.state();
        match mem::take(&mut *state) {
            IncomingState::Open(nodes) if nodes.permits <= permits => {
                *state = IncomingState::Taken;
                Some(nodes)
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// Lays the holder's hand-over ready.
    pub(crate) fn grant(&self, handed_over: HandedOver) {
        *self.state() = IncomingState::Granted(handed_over);
        self.received.notify_one();
    }

    /// Waits until a holder hands its permits over; for as long as none does. Cancel safe.
    pub(crate) async fn granted(&self) {
        while !matches!(*self.state(), IncomingState::Granted(_)) {
            self.received.notified().await;
        }
    }

    /// Waits until a holder hands its permits over, and takes them. Cancel safe.
    pub(crate) async fn received(&self) -> HandedOver {
        loop {
            if let Some(handed_over) = self.take_handed_over() {
                return handed_over;
            }
            self.received.notified().await;
        }
    }

    fn take_handed_over(&self) -> Option<HandedOver> {
        let mut state = self.state();
        match mem::take(&mut *state) {
            IncomingState::Granted(handed_over) => Some(handed_over),
            other => {
                *state = other;
                None
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, IncomingState> {
        // Every critical section leaves it valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn nodes(permits: u32) -> PermitNodes {
        PermitNodes { permits, new: Vec::new(), record: Vec::new() }
    }

    fn handed_over() -> HandedOver {
        HandedOver {
            made: Box::pin(async { Ok(Vec::new()) }),
            was_changing: false,
            sent_at: BootInstant::FAR_FUTURE,
            next: None,
        }
    }

    #[test]
    fn either_a_holder_takes_the_nodes_or_the_waiter_closes_it() {
        let incoming = Incoming::default();
        assert!(incoming.take(1).is_none() && incoming.close(), "there is none");
        incoming.open(nodes(2));
        assert!(incoming.take(1).is_none(), "too few for it");
        assert!(incoming.close() && incoming.take(2).is_none());
        incoming.open(nodes(2));
        assert_eq!(incoming.take(3).map(|nodes| nodes.permits), Some(2));
        assert!(!incoming.close() && incoming.take(3).is_none());
        incoming.open(nodes(2));
        assert!(incoming.take(3).is_none(), "it was opened while a holder had the nodes");
    }

    #[test]
    fn what_is_handed_over_comes_once() {
        let incoming = Incoming::default();
        incoming.open(nodes(1));
        assert!(incoming.received().now_or_never().is_none());
        let _ = incoming.take(1);
        assert!(incoming.received().now_or_never().is_none());
        assert!(incoming.granted().now_or_never().is_none());
        incoming.grant(handed_over());
        assert!(incoming.granted().now_or_never().is_some() && !incoming.close());
        assert!(incoming.received().now_or_never().is_some());
        assert!(incoming.received().now_or_never().is_none() && incoming.close());
    }
}
