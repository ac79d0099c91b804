//! The pushes that a client receives, and for whom each is.

use std::sync::Arc;

use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{Notice, NoticeSource};

use super::queue::WaitQueues;
use crate::client::push::{Inbox, Message};

/// Hands each push to whom it concerns.
pub(crate) fn inbox(queues: Arc<WaitQueues>, losses: Arc<NoticeSource>) -> Inbox {
    Arc::new(move |message| match message {
        Message::Granted(granted) => queues.granted(granted, None),
        Message::AskAfter { lock, pause } => queues.ask_after(&lock, pause),
        Message::Reconnected => queues.ask_all(),
        Message::Forced { nonce, reason } => {
            losses.announce(Notice::new(nonce, reason, SystemClock.now()));
        }
    })
}
