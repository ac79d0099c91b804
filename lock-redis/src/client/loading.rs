//! The telling of scripts over one connection: one request carries the text, and the others wait for it.
//!
//! After a restart every request in flight finds its script unknown. Commands of one connection are carried out in order,
//! so a request that was sent before the text finds it known when it is sent again. Whoever tells a script is a caller, which may be
//! polled when it likes, or never again: those who wait for it go on after a time, again with one of them that tells it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::clock::BootInstant;

use crate::store::scripts::Script;

/// The telling of each script over one connection. Bounded by the number of scripts.
#[derive(Debug, Default)]
pub(super) struct Loading {
    scripts: Mutex<HashMap<&'static str, Telling>>,
    /// The digests of those that were carried out over it, for whoever must not wait for the text of another.
    known: Mutex<HashSet<&'static str>>,
}

/// The telling of one script.
#[derive(Debug, Default)]
struct Telling {
    turn: Arc<TellingTurn>,
    /// The instant at which the text was sent last that the server has answered, whoever has sent it.
    told_at: Option<BootInstant>,
}

/// The turn to tell a script, of one caller at a time.
pub(super) type TellingTurn = tokio::sync::Mutex<()>;

impl Loading {
    /// Returns the turn to tell this script.
    pub(super) fn turn(&self, script: &Script) -> Arc<TellingTurn> {
        self.scripts().entry(script.code).or_default().turn.clone()
    }

    /// Gives the turn to others, from one who has not come to its end for too long, unless that was done: whoever asks from now on tells the
    /// script, or waits for another one who does.
    pub(super) fn take_from(&self, script: &Script, turn: &Arc<TellingTurn>) {
        if let Some(telling) = self.scripts().get_mut(script.code)
            && Arc::ptr_eq(&telling.turn, turn)
        {
            telling.turn = Arc::default();
        }
    }

    /// Takes note that the server has answered the text that was sent at this instant.
    pub(super) fn note_told(&self, script: &Script, sent_at: BootInstant) {
        let mut scripts = self.scripts();
        let telling = scripts.entry(script.code).or_default();
        telling.told_at = telling.told_at.max(Some(sent_at));
    }

    /// Whether the server has answered a text that was sent at this instant or later.
    pub(super) fn was_told_since(&self, script: &Script, at: BootInstant) -> bool {
        self.scripts().get(script.code).is_some_and(|telling| telling.told_at >= Some(at))
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

    fn scripts(&self) -> MutexGuard<'_, HashMap<&'static str, Telling>> {
        // Every critical section leaves it valid after each statement.
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, HashSet<&'static str>> {
        // Each critical section is one statement.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
