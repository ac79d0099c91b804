//! Foreign clients that hold a shared key, and whose releases tell nobody.

use std::sync::Arc;
use std::time::Duration;

use super::machine::Pause;
use super::queue::WaitQueues;
use crate::client::key_tracking::KeyTracking;
use crate::client::links::Links;
use crate::store::keys::Keys;

/// The look-out for changes of the shared keys for which this client waits.
#[derive(Debug)]
pub(crate) struct ForeignHolders {
    links: Arc<Links>,
    tracking: KeyTracking,
}

impl ForeignHolders {
    /// A look-out that has these queues ask for a key that has changed.
    pub(crate) fn new(links: Arc<Links>, queues: Arc<WaitQueues>) -> Self {
        let tracking = links.tracking(Arc::new(move |key: &str| queues.ask_after(key, Duration::ZERO)));
        Self { links, tracking }
    }

    /// Looks out for what a waiter at a shared key was told that it has to wait for.
    pub(crate) fn look_out(&self, keys: &Keys, pause: Pause) {
        let is_held = match pause {
            Pause::Foreign => true,
            Pause::Free(_) => false,
            Pause::None | Pause::Until(_) | Pause::Regular => return,
        };
        if let Some(server) = self.links.master(&keys.lock) {
            self.tracking.listen(&server, &keys.lock, is_held);
        }
    }
}
