//! Leaving: a mutex keeps its node, which the servers end with its session only, until this client deletes it.

use std::sync::Arc;

use lock_core::Error;
use lock_core::driver::{Attempt, Left, Renewal, Renewed};

use crate::registry::Registry;
use crate::renew::Renewer;

/// Leaves mutexes.
#[derive(Debug)]
pub(crate) struct Leaver {
    renewer: Arc<Renewer>,
    registry: Arc<Registry>,
}

impl Leaver {
    pub(crate) fn new(renewer: Arc<Renewer>, registry: Arc<Registry>) -> Self {
        Self { renewer, registry }
    }

    /// Looks whether a grant that is to be left is still there. Its nodes stay until they are deleted, or with their session.
    pub(crate) async fn leave(&self, attempt: &Attempt) -> Result<Left, Error> {
        let answers = self.renewer.verify(&[Renewal::new(attempt, attempt.ttl)], attempt.op_timeout).await;
        match answers.into_iter().next() {
            Some(Renewed::Lost(reason)) => Ok(Left::NotHeld(Some(reason))),
            Some(Renewed::Unknown(error)) => Err(error),
            _ => {
                if let Some(registration) = self.registry.get(attempt.id) {
                    self.registry.disown_node(&registration);
                }
                Ok(Left::UntilReleased)
            }
        }
    }
}
