//! A run of a script at every server of a quorum.

use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::Phase;

use crate::client::link::call::Call;
use crate::store::scripts::Script;

/// A run of a script, the same for every server.
#[derive(Debug)]
pub(super) struct ScriptRequest {
    pub(super) script: &'static Script,
    pub(super) call: Call,
    pub(super) phase: Phase,
    /// Its letter in a batch; `None` if it goes by itself.
    pub(super) letter: Option<char>,
    /// Whether something may have been sent that undoes it.
    is_over: AtomicBool,
}

impl ScriptRequest {
    /// A run of this script with these keys and arguments, which goes by itself.
    pub(super) fn new(script: &'static Script, call: Call, phase: Phase) -> Self {
        Self { script, call, phase, letter: None, is_over: AtomicBool::new(false) }
    }

    /// Lets it go with others, in a batch where its script has this letter.
    pub(super) fn with_others(mut self, letter: char) -> Self {
        self.letter = Some(letter);
        self
    }

    /// Has it not sent again from here on to a server that did not know its script: it is about to be undone.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether it may be sent again.
    pub(super) fn is_wanted(&self) -> bool {
        !self.is_over.load(Ordering::Acquire)
    }
}
