//! The standing of this process in an election.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch::{Receiver, Sender};
use tokio::time::Instant;

use crate::term::{PastTerm, Term};

/// The longest time without a campaign, about a year: longer ones are shortened to it.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The terms of this process, which the clones of an election and their watches have in common.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    latest: Mutex<Latest>,
    changes: Sender<()>,
}

#[derive(Debug, Default)]
struct Latest {
    /// Those that led when the last one of them began, the highest number first. A clone that has not noticed its loss is one too many, and
    /// a server that has lost its data begins its tokens anew: of two that lead, the number does not say which of them will last.
    terms: Vec<PastTerm>,
    /// The instant before which it does not campaign again.
    cools_until: Option<Instant>,
}

impl Standing {
    /// A term of this process has begun. One that is told late does not take the place of a later one as long as that leads.
    pub(crate) fn begin(&self, term: &Term) {
        let mut latest = self.latest();
        let mut leading: Vec<_> = latest.terms.iter().filter_map(PastTerm::leading).collect();
        let place = leading.partition_point(|present| present.number() > term.number());
        if place == 0 {
            latest.cools_until = None;
        }
        leading.insert(place, term.clone());
        latest.terms = leading.iter().map(Term::past).collect();
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

    /// Returns the term in which this process leads now; of several the one with the highest number.
    pub(crate) fn term(&self) -> Option<Term> {
        let terms = self.latest().terms.clone();
        terms.iter().find_map(PastTerm::leading)
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
    use std::sync::Arc;

    use futures_util::FutureExt;
    use lock_core::FencingToken;
    use lock_core::memory::MemoryStore;

    use super::*;
    use crate::watch::LeadershipWatch;

    /// A term of a new client of this store.
    async fn begun(standing: &Standing, store: &MemoryStore) -> Term {
        let guard = store.connect().recorded("leader").unwrap().lock().await.unwrap();
        Term::begin(guard, Duration::ZERO, standing.changes())
    }

    fn number(standing: &Standing) -> Option<FencingToken> {
        standing.term().map(|term| term.number())
    }

    /// The task of a clone may stand still between its grant and the beginning of its term.
    #[tokio::test]
    async fn a_term_that_begins_late_hides_no_later_one_that_leads() {
        let store = MemoryStore::new();
        let standing = Standing::default();
        let earlier = begun(&standing, &store).await;
        store.lose("leader");
        let present = begun(&standing, &store).await;
        standing.begin(&present);
        standing.begin(&earlier);
        assert_eq!(number(&standing), Some(present.number()));
        drop(present);
        let after_a_restart = begun(&standing, &MemoryStore::new()).await;
        standing.begin(&after_a_restart);
        assert_eq!(number(&standing), Some(after_a_restart.number()), "of a server without data");
    }

    /// A server that has lost its data begins its tokens anew, and the clone that led before may not have noticed.
    #[tokio::test]
    async fn a_term_that_leads_is_not_hidden_by_one_with_a_higher_number_that_is_over() {
        let standing = Arc::new(Standing::default());
        let mut watch = LeadershipWatch::new(standing.clone());
        let before = MemoryStore::new();
        drop(begun(&standing, &before).await);
        let (former, present) = (begun(&standing, &before).await, begun(&standing, &MemoryStore::new()).await);
        assert!(present.number() < former.number());
        standing.begin(&former);
        standing.begin(&present);
        assert_eq!(watch.changed().await, Some(former.number()), "the higher one first");
        drop(former.take());
        assert_eq!(number(&standing), Some(present.number()));
        assert_eq!(watch.changed().now_or_never(), Some(Some(present.number())));
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
