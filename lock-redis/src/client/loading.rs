//! The telling of scripts over one connection: one request carries the text, and the others wait for it.
//!
//! After a restart every request in flight finds its script unknown. Commands of one connection are carried out in order,
//! so a request that was sent before the text finds it known when it is sent again. Whoever tells a script is a caller, which may be
//! polled when it likes, or never again: those who wait for it go on after a time, again with one of them that tells it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::clock::BootInstant;

use crate::store::scripts::Script;

/// The instants at which each script's text was sent last over one connection. Bounded by the number of scripts.
#[derive(Debug, Default)]
pub(super) struct Loading {
    scripts: Mutex<HashMap<&'static str, Arc<tokio::sync::Mutex<Told>>>>,
    /// The digests of those that were carried out over it, for whoever must not wait for the text of another.
    known: Mutex<HashSet<&'static str>>,
}

/// The instant at which the text was sent that the server has taken, if it has.
pub(super) type Told = Option<BootInstant>;

impl Loading {
    /// The telling of this script, for one at a time.
    pub(super) fn of(&self, script: &Script) -> Arc<tokio::sync::Mutex<Told>> {
        // The critical section is one statement.
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner).entry(script.code).or_default().clone()
    }

    /// Takes the telling from one who has not come to its end for too long, unless that was done: whoever asks from now on tells the script,
    /// or waits for another one who does.
    pub(super) fn take_from(&self, script: &Script, telling: &Arc<tokio::sync::Mutex<Told>>) {
        // The critical section is one statement, and leaves an entry that is valid.
        if let Some(present) = self.scripts.lock().unwrap_or_else(PoisonError::into_inner).get_mut(script.code)
            && Arc::ptr_eq(present, telling)
        {
            *present = Arc::default();
        }
    }

    /// Whether the server has carried this script out over this connection.
    pub(super) fn knows(&self, script: &Script) -> bool {
        self.known().contains(&*script.digest)
    }

    /// Takes note that the server has carried this script out, or that it does not know it any more.
    pub(super) fn set_known(&self, script: &'static Script, known: bool) {
        if known {
            self.known().insert(&script.digest);
        } else {
            self.known().remove(&*script.digest);
        }
    }

    fn known(&self) -> MutexGuard<'_, HashSet<&'static str>> {
        // Each critical section is one statement.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
