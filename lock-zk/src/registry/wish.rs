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
pub(crate) struct Inheritance {
    /// The paths of the nodes, once they are made.
    pub(crate) made: Response<'static, Vec<String>>,
    /// Whether the waiter's nodes were to be exchanged before, and it is not known which ones it has.
    pub(crate) was_changing: bool,
    pub(crate) sent_at: BootInstant,
    /// The waiter that was right behind by then.
    pub(crate) next: Option<Waiter>,
}

/// The wish of one attempt. A holder takes it before anything is sent, and the waiter takes it back before it makes its permits by
/// itself: so one of them makes them.
#[derive(Default)]
pub(crate) struct Wish {
    state: Mutex<WishState>,
    inherited: Notify,
}

#[derive(Default)]
enum WishState {
    #[default]
    None,
    Open(PermitNodes),
    /// A holder has taken it, and is about to hand over.
    Taken,
    Granted(Inheritance),
}

impl Wish {
    /// Lays the wish ready, unless a holder has taken it.
    pub(crate) fn open(&self, nodes: PermitNodes) {
        let mut state = self.state();
        if let WishState::None | WishState::Open(_) = *state {
            *state = WishState::Open(nodes);
        }
    }

    /// Takes the wish back. False if a holder has taken it: then its permits [come](Wish::inherited), or do not.
    pub(crate) fn take_back(&self) -> bool {
        let mut state = self.state();
        if let WishState::Taken | WishState::Granted(_) = *state {
            return false;
        }
        *state = WishState::None;
        true
    }

    /// Takes the wish for a holder that has so many permits, if it is for no more.
    pub(super) fn take(&self, permits: u32) -> Option<PermitNodes> {
        let mut state = self.state();
        match mem::take(&mut *state) {
            WishState::Open(nodes) if nodes.permits <= permits => {
                *state = WishState::Taken;
                Some(nodes)
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// Lays the holder's hand-over ready.
    pub(crate) fn grant(&self, inheritance: Inheritance) {
        *self.state() = WishState::Granted(inheritance);
        self.inherited.notify_one();
    }

    /// Waits until a holder hands its permits over; for as long as none does. Cancel safe.
    pub(crate) async fn granted(&self) {
        while !matches!(*self.state(), WishState::Granted(_)) {
            self.inherited.notified().await;
        }
    }

    /// Waits until a holder hands its permits over, and takes them. Cancel safe.
    pub(crate) async fn inherited(&self) -> Inheritance {
        loop {
            if let Some(inheritance) = self.take_inheritance() {
                return inheritance;
            }
            self.inherited.notified().await;
        }
    }

    fn take_inheritance(&self) -> Option<Inheritance> {
        let mut state = self.state();
        match mem::take(&mut *state) {
            WishState::Granted(inheritance) => Some(inheritance),
            other => {
                *state = other;
                None
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, WishState> {
        // Every critical section leaves it valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Wish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wish").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn nodes(permits: u32) -> PermitNodes {
        PermitNodes { permits, new: Vec::new(), record: Vec::new() }
    }

    fn inheritance() -> Inheritance {
        Inheritance {
            made: Box::pin(async { Ok(Vec::new()) }),
            was_changing: false,
            sent_at: BootInstant::FAR_FUTURE,
            next: None,
        }
    }

    #[test]
    fn either_a_holder_takes_it_or_the_waiter_takes_it_back() {
        let wish = Wish::default();
        assert!(wish.take(1).is_none() && wish.take_back(), "there is none");
        wish.open(nodes(2));
        assert!(wish.take(1).is_none(), "too few for it");
        assert!(wish.take_back() && wish.take(2).is_none());
        wish.open(nodes(2));
        assert_eq!(wish.take(3).map(|nodes| nodes.permits), Some(2));
        assert!(!wish.take_back() && wish.take(3).is_none());
        wish.open(nodes(2));
        assert!(wish.take(3).is_none(), "it was opened while a holder had it");
    }

    #[test]
    fn what_is_handed_over_comes_once() {
        let wish = Wish::default();
        wish.open(nodes(1));
        assert!(wish.inherited().now_or_never().is_none());
        let _ = wish.take(1);
        assert!(wish.inherited().now_or_never().is_none());
        assert!(wish.granted().now_or_never().is_none());
        wish.grant(inheritance());
        assert!(wish.granted().now_or_never().is_some() && !wish.take_back());
        assert!(wish.inherited().now_or_never().is_some());
        assert!(wish.inherited().now_or_never().is_none() && wish.take_back());
    }
}
