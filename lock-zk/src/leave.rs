//! Leaving: a mutex keeps its node, which the servers end with its session only, until this client deletes it.

use std::sync::Arc;

use lock_core::Error;
use lock_core::driver::{Attempt, Left, Renewal, Renewed};

use crate::renew::Renewer;

/// Leaves mutexes.
#[derive(Debug)]
pub(crate) struct Leaver {
    renewer: Arc<Renewer>,
}

impl Leaver {
    pub(crate) fn new(renewer: Arc<Renewer>) -> Self {
        Self { renewer }
    }

    /// Looks whether a grant that is to be left is still there. Its nodes stay until they are deleted, or with their session.
    pub(crate) async fn leave(&self, attempt: &Attempt) -> Result<Left, Error> {
        let answers = self.renewer.verify(&[Renewal::new(attempt, attempt.ttl)], attempt.op_timeout).await;
        match answers.into_iter().next() {
            Some(Renewed::Lost(reason)) => Ok(Left::NotHeld(Some(reason))),
            Some(Renewed::Unknown(error)) => Err(error),
            _ => Ok(Left::UntilReleased),
        }
    }
}
