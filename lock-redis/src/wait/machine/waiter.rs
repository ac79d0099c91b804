//! One waiter's place: what the server has said of it, and what it is to be told.

use std::time::Duration;

use lock_core::FencingToken;
use lock_core::clock::BootInstant;
use lock_core::driver::Grant;

use super::Granted;

/// One waiter.
///
/// `W` is whatever wakes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiter<W> {
    wake: W,
    /// The instant at which the last request was sent that was answered "still waiting".
    pub(super) asked_at: BootInstant,
    /// No grant of the present stay in the queue has a token up to this one. One that has is of an earlier stay.
    pub(super) floor: u64,
    ticket: Option<u64>,
    pub(super) news: Option<News>,
}

/// The news that a waiter is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// The waiter has the lock.
    Granted(Grant),
    /// The waiter's entry is gone, or a grant needs to be confirmed: ask again under the same nonce.
    AskAgain,
}

impl<W: Clone> Waiter<W> {
    pub(super) fn new(wake: W) -> Self {
        Self { wake, asked_at: BootInstant::from_origin(Duration::ZERO), floor: 0, ticket: None, news: None }
    }

    /// The server has put this waiter into the queue, by a request that was sent at `sent_at`.
    pub(super) fn queued(&mut self, sent_at: BootInstant, ticket: u64, last_token: u64) {
        (self.asked_at, self.ticket, self.floor) = (sent_at, Some(ticket), last_token);
        let is_earlier = |token: FencingToken| token.as_u64() <= last_token;
        // A grant that it was told of while it asked, and that was over when the server answered.
        self.news.take_if(|news| matches!(news, News::Granted(grant) if grant.token.is_some_and(is_earlier)));
    }

    /// A request that was sent at `sent_at` found it in the queue, and the last token that was given there. That is less
    /// than before where another server took over, whose clock is behind.
    pub(super) fn still_queued(&mut self, sent_at: BootInstant, last_token: Option<u64>) {
        if sent_at >= self.asked_at {
            self.asked_at = sent_at;
            self.floor = last_token.unwrap_or(self.floor);
        }
    }

    /// The waiter has the lock from `sent_at` or, if that is not known, from its own last question.
    pub(super) fn granted(&mut self, now: BootInstant, granted: Granted, sent_at: Option<BootInstant>) -> Option<W> {
        let Granted { token, valid_for, .. } = granted;
        // The answer to a later question is about its present stay, however far behind the clock of the server is that has taken over.
        let is_later = sent_at.is_some_and(|sent_at| sent_at > self.asked_at);
        if token.as_u64() <= self.floor && !is_later {
            return None;
        }
        let from = sent_at.unwrap_or(self.asked_at);
        let grant = Grant::new(Some(token), from, valid_for).with_woken_at(now);
        // A push is for a claim time, and a part of that may be over.
        let grant = if sent_at.is_none() { grant.with_claim() } else { grant };
        // What is already over, or was never asked for, must be confirmed first.
        self.news = Some(if is_fresh(now, from, valid_for) { News::Granted(grant) } else { News::AskAgain });
        Some(self.wake.clone())
    }

    /// A request that was sent at `sent_at` did not find it: it is to ask again if it has not asked since. With `surely`, even
    /// if it was told of a grant: the server has forgotten it.
    pub(super) fn forgotten_at(&mut self, sent_at: BootInstant, surely: bool) -> Option<W> {
        if self.asked_at > sent_at {
            return None;
        }
        if surely {
            self.news = None;
        }
        Some(self.ask_again())
    }

    /// Has the waiter ask again, unless it has been told of a grant.
    pub(super) fn ask_again(&mut self) -> W {
        self.news.get_or_insert(News::AskAgain);
        self.wake.clone()
    }

    /// Takes its news, if there are any. A grant that has waited here for too long must be confirmed first.
    pub(super) fn take_news(&mut self, now: BootInstant) -> Option<News> {
        let news = self.news.take()?;
        Some(match news {
            News::Granted(grant) if !is_fresh(now, grant.sent_at, grant.valid_for) => News::AskAgain,
            news => news,
        })
    }
}

/// Whether so much is left of a grant that its claim comes in time.
fn is_fresh(now: BootInstant, from: BootInstant, valid_for: Duration) -> bool {
    now < from.plus(valid_for / 2)
}

impl<W> Waiter<W> {
    /// The ticket of its place in the queue, if it ever had one.
    pub(super) fn ticket(&self) -> Option<u64> {
        self.ticket
    }

    /// The instant at which the last request was sent that was answered "still waiting".
    pub(super) fn asked_at(&self) -> BootInstant {
        self.asked_at
    }
}
