//! One waiter's place: what the server has said of it, and what it is to be told.

use std::sync::Mutex;

use lock_core::GrantId;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::Grant;
use tokio::sync::Notify;

use super::{Granted, locked};

/// One waiter.
#[derive(Debug)]
pub(super) struct LocalWaiter {
    pub(super) nonce: GrantId,
    slot: Mutex<Slot>,
    told: Notify,
}

#[derive(Debug)]
struct Slot {
    /// The instant at which the last request was sent that was answered "still waiting".
    asked_at: BootInstant,
    /// Grants up to this token are from an earlier stay in the queue, perhaps one whose confirmation never came.
    floor: u64,
    ticket: Option<u64>,
    news: Option<News>,
}

/// The news that a waiter is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// It has the lock.
    Granted(Grant),
    /// Its entry is gone, or a grant needs to be confirmed: ask again under the same nonce.
    AskAgain,
}

impl LocalWaiter {
    pub(super) fn new(nonce: GrantId) -> Self {
        let slot =
            Slot { asked_at: BootInstant::from_origin(std::time::Duration::ZERO), floor: 0, ticket: None, news: None };
        Self { nonce, slot: Mutex::new(slot), told: Notify::new() }
    }

    /// The server has put this waiter into the queue, by a request that was sent at `sent_at`.
    pub(super) fn queued(&self, sent_at: BootInstant, ticket: u64, last_token: u64) {
        let mut slot = locked(&self.slot);
        slot.ticket = Some(ticket);
        slot.asked_at = sent_at;
        slot.floor = last_token;
    }

    /// A request that was sent at `sent_at` found it in the queue, and the last token that was given there. That is less
    /// than before where another server took over, whose clock is behind.
    pub(super) fn still_queued(&self, sent_at: BootInstant, last_token: Option<u64>) {
        let mut slot = locked(&self.slot);
        if sent_at >= slot.asked_at {
            slot.asked_at = sent_at;
            slot.floor = last_token.unwrap_or(slot.floor);
        }
    }

    /// It has the lock for the claim time: from `sent_at` or, if that is not known, from its own last question.
    pub(super) fn granted(&self, Granted { token, claim, .. }: Granted, sent_at: Option<BootInstant>) {
        let mut slot = locked(&self.slot);
        if token.as_u64() <= slot.floor {
            return;
        }
        let from = sent_at.unwrap_or(slot.asked_at);
        let now = SystemClock.now();
        let grant = Grant::new(Some(token), from, claim).to_be_claimed().woken_at(now);
        // What is already over, or was never asked for, must be confirmed first.
        let fresh = now < from.plus(claim / 2);
        slot.news = Some(if fresh { News::Granted(grant) } else { News::AskAgain });
        drop(slot);
        self.told.notify_one();
    }

    /// It is to ask again, even if it was told of a grant: the server has forgotten it.
    pub(super) fn is_forgotten(&self) {
        locked(&self.slot).news = Some(News::AskAgain);
        self.told.notify_one();
    }

    /// It is to ask again, unless it has been told of a grant.
    pub(super) fn ask_again(&self) {
        locked(&self.slot).news.get_or_insert(News::AskAgain);
        self.told.notify_one();
    }

    /// The ticket of its place in the queue, if it ever had one.
    pub(super) fn ticket(&self) -> Option<u64> {
        locked(&self.slot).ticket
    }

    /// The instant at which the last request was sent that was answered "still waiting".
    pub(super) fn asked_at(&self) -> BootInstant {
        locked(&self.slot).asked_at
    }

    /// Waits for news.
    ///
    /// # Cancel safety
    /// News are not lost.
    pub(super) async fn news(&self) -> News {
        loop {
            if let Some(news) = locked(&self.slot).news.take() {
                return news;
            }
            self.told.notified().await;
        }
    }
}
