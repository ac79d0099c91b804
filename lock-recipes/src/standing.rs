//! The standing of this process in an election.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch::{Receiver, Sender};
use tokio::time::Instant;

use crate::term::{PastTerm, Term};

/// The longest time without a campaign, about a year: longer ones are shortened to it.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The latest term of this process, which the clones of an election and their watches have in common.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    latest: Mutex<Latest>,
    changes: Sender<()>,
}

#[derive(Debug, Default)]
struct Latest {
    term: PastTerm,
    /// The instant before which it does not campaign again.
    cools_until: Option<Instant>,
}

impl Standing {
    /// A term of this process has begun. One that is told late does not take the place of a later one that leads.
    pub(crate) fn begin(&self, term: &Term) {
        let mut latest = self.latest();
        // Of one that is over the number says nothing: a server that has lost its data begins its tokens anew.
        if latest.term.leading().is_some_and(|present| present.number() > term.number()) {
            return;
        }
        *latest = Latest { term: term.past(), cools_until: None };
        drop(latest);
        self.changes.send_replace(());
    }

    /// Has the candidate not campaign for so long, and those that campaign already leave the queue.
    pub(crate) fn cool_down(&self, time: Duration) {
        self.latest().cools_until = Instant::now().checked_add(time.min(LONGEST));
        if !time.is_zero() {
            self.changes.send_replace(());
        }
    }

    /// Resolves when it cools down: at once, or from the end of its next term on.
    pub(crate) async fn cools(&self) {
        // Before the look, so that what changes after it wakes.
        let mut changes = self.subscribe();
        while !self.is_cooling() {
            // The standing has the sender, so this is no error.
            let _ = changes.changed().await;
        }
    }

    pub(crate) fn is_cooling(&self) -> bool {
        self.cools_until().is_some_and(|until| until > Instant::now())
    }

    pub(crate) fn cools_until(&self) -> Option<Instant> {
        self.latest().cools_until
    }

    /// Returns the term in which this process leads now.
    pub(crate) fn term(&self) -> Option<Term> {
        let term = self.latest().term.clone();
        term.leading()
    }

    /// The end at which changes are told.
    pub(crate) fn changes(&self) -> Sender<()> {
        self.changes.clone()
    }

    pub(crate) fn subscribe(&self) -> Receiver<()> {
        self.changes.subscribe()
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use lock_core::memory::MemoryStore;

    use super::*;

    /// The task of a clone may stand still between its grant and the beginning of its term.
    #[tokio::test]
    async fn a_term_that_begins_late_hides_no_later_one_that_leads() {
        let store = MemoryStore::new();
        let standing = Standing::default();
        let begun = async |store: &MemoryStore| {
            let guard = store.connect().recorded("leader").unwrap().lock().await.unwrap();
            Term::begin(guard, Duration::ZERO, standing.changes())
        };
        let earlier = begun(&store).await;
        store.lose("leader");
        let present = begun(&store).await;
        standing.begin(&present);
        standing.begin(&earlier);
        assert_eq!(standing.term().map(|term| term.number()), Some(present.number()));
        drop(present);
        let after_a_restart = begun(&MemoryStore::new()).await;
        standing.begin(&after_a_restart);
        assert_eq!(
            standing.term().map(|term| term.number()),
            Some(after_a_restart.number()),
            "of a server without data"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_without_campaigns_lasts_for_a_year_at_most() {
        let standing = Standing::default();
        for (time, cut) in [(LONGEST / 2, LONGEST / 2), (LONGEST * 2, LONGEST), (Duration::MAX, LONGEST)] {
            standing.cool_down(time);
            assert_eq!(standing.cools_until(), Some(Instant::now() + cut));
        }
    }
}
