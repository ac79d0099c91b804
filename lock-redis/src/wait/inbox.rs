//! The pushes that a client receives, and for whom each is.

use std::sync::{Arc, Mutex, PoisonError};

use lock_core::driver::Notices;
use lock_core::{GrantId, LossReason};
use tokio::sync::mpsc;

use super::queue::WaitQueues;
use crate::client::push::{Inbox, Message};

/// The losses that the server announces, for the client's keeper.
#[derive(Debug, Default)]
pub(crate) struct AnnouncedLosses {
    listener: Mutex<Option<mpsc::UnboundedSender<(GrantId, LossReason)>>>,
}

impl AnnouncedLosses {
    /// The losses that are announced from here on.
    pub(crate) fn listen(&self) -> Notices {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    fn announce(&self, grant: GrantId, reason: LossReason) {
        if let Some(listener) = &*self.listener.lock().unwrap_or_else(PoisonError::into_inner) {
            // A client without a keeper has no guards to tell.
            let _ = listener.send((grant, reason));
        }
    }
}

/// Hands each push to whom it concerns.
pub(crate) fn inbox(queues: Arc<WaitQueues>, losses: Arc<AnnouncedLosses>) -> Inbox {
    Box::new(move |message| match message {
        Message::Granted(granted) => queues.granted(granted, None),
        Message::AskAfter { lock, pause } => queues.ask_after(&lock, pause),
        Message::Reconnected => queues.ask_all(),
        Message::Forced { nonce, reason } => losses.announce(nonce, reason),
    })
}
