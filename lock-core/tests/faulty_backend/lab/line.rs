//! The line to the backend: its faults, switches and counts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lock_core::GrantId;
use lock_core::driver::DoubtSource;

use super::eventually;

/// The line's treatment of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Carries it, and the answer back.
    #[default]
    None,
    /// Loses it: a request is given up after its operation timeout, a wait after its patience.
    Silent,
    /// Carries it and loses the answer, at once.
    LosesAnswers,
    /// Says at once that it carries nothing.
    Down,
    /// Never says anything, and gives nothing up: a backend without timeouts.
    Hangs,
    /// Carries it, and keeps the answer until the fault changes.
    KeepsAnswers,
    /// Carries it after this time.
    Late(Duration),
    /// Panics: a backend with a mistake.
    Panics,
}

/// The server's part in leaving a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// It ends the lock by itself.
    #[default]
    ByItself,
    /// It keeps the lock until it is released.
    UntilReleased,
    /// It cannot.
    No,
}

/// The time for which a lock is kept that the server does not end by itself.
pub(super) const KEPT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) fault: Fault,
    pub(super) asked: HashMap<&'static str, usize>,
    pub(super) copies_on_their_way: usize,
    pub(super) late: Duration,
    pub(super) outlasts_lease: Duration,
    pub(super) may_remain: bool,
    /// The beginning of the names whose place is away.
    pub(super) away: Option<&'static str>,
    /// The fault that its requests meet.
    pub(super) far: Fault,
    pub(super) has_one_place: bool,
    pub(super) panics_at_questions: bool,
    pub(super) panics_at_doubts: bool,
    pub(super) has_no_tokens: bool,
    pub(super) takes_several: Option<usize>,
    pub(super) leaves: Leaves,
    pub(super) longest_ttl: Option<Duration>,
    pub(super) granularity: Option<Duration>,
    pub(super) confirms_no_end: bool,
    pub(super) announces_losses: bool,
    pub(super) polls: bool,
    pub(super) hangs_at_records: bool,
    pub(super) doubts: DoubtSource,
    pub(super) forgotten: Vec<GrantId>,
}

/// The line's switches, in the test's hands.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line(Arc<Mutex<State>>);

impl Line {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(crate) fn set(&self, fault: Fault) {
        self.state().fault = fault;
    }

    /// From now on so many cancellations answer that a copy of the acquisition may still be on its way.
    pub(crate) fn keeps_copies(&self, copies: usize) {
        self.state().copies_on_their_way = copies;
    }

    /// Grants say that they were sent this long ago.
    pub(crate) fn is_late_by(&self, late: Duration) {
        self.state().late = late;
    }

    /// Lets things at the server outlast their lease by so much.
    pub(crate) fn outlasts_leases_by(&self, time: Duration) {
        self.state().outlasts_lease = time;
    }

    /// Whether what is left of an attempt may stay however much time has passed.
    pub(crate) fn lets_remain(&self, may_remain: bool) {
        self.state().may_remain = may_remain;
    }

    /// The place of the names that begin like this is away from now on; its requests are lost at once. Another one serves the
    /// others.
    pub(crate) fn is_away(&self, away: Option<&'static str>) {
        (self.state().away, self.state().far) = (away, Fault::Down);
    }

    /// The place of the names that begin like this says nothing from now on. Another one serves the others.
    pub(crate) fn is_silent(&self, away: &'static str) {
        (self.state().away, self.state().far) = (Some(away), Fault::Silent);
    }

    /// All names have the same place, also those whose requests are lost.
    pub(crate) fn has_one_place(&self) {
        self.state().has_one_place = true;
    }

    /// Panics at every question that needs no server.
    pub(crate) fn panics_at_questions(&self) {
        self.state().panics_at_questions = true;
    }

    /// Panics when it is asked for its doubts.
    pub(crate) fn panics_at_doubts(&self) {
        self.state().panics_at_doubts = true;
    }

    pub(super) fn panics(&self) {
        let panics = self.state().panics_at_questions;
        assert!(!panics, "a mistake in the backend, planted by the test");
    }

    /// The server may have forgotten grants.
    pub(crate) fn raises_doubts(&self) {
        self.state().doubts.raise();
    }

    /// Clients that are not in use yet hear of losses.
    pub(crate) fn announces_losses(&self) {
        self.state().announces_losses = true;
    }

    /// Mutexes and reentrant locks are waited for by one try after another from now on, as a backend that has only tries does.
    pub(crate) fn polls(&self) {
        self.state().polls = true;
    }

    /// The server's expiry is as coarse as this, for clients that connect from now on.
    pub(crate) fn counts_in(&self, step: Duration) {
        self.state().granularity = Some(step);
    }

    /// Promises no fencing tokens, and gives none.
    pub(crate) fn has_no_tokens(&self) {
        self.state().has_no_tokens = true;
    }

    /// Several locks are taken in one step from now on, of whose grants this many do not come back.
    pub(crate) fn takes_several(&self, short_of: usize) {
        self.state().takes_several = Some(short_of);
    }

    /// From now on locks are left like this.
    pub(crate) fn leaves(&self, leaves: Leaves) {
        self.state().leaves = leaves;
    }

    /// Clients that connect from now on allow no longer TTL, and renew for none.
    pub(crate) fn allows_ttls_up_to(&self, longest: Duration) {
        self.state().longest_ttl = Some(longest);
    }

    /// Whether renewals are carried out and answered by a server that does not say when they end: its clock stands still.
    pub(crate) fn confirms_no_end(&self, is_so: bool) {
        self.state().confirms_no_end = is_so;
    }

    /// Whether writes of records meet a server that says nothing, while others are answered.
    pub(crate) fn hangs_at_records(&self, is_so: bool) {
        self.state().hangs_at_records = is_so;
    }

    /// The attempts that the core has given up on.
    pub(crate) fn forgotten(&self) -> Vec<GrantId> {
        self.state().forgotten.clone()
    }

    /// The number of times that this was asked.
    pub(crate) fn asked(&self, what: &str) -> usize {
        self.state().asked.get(what).copied().unwrap_or_default()
    }

    /// Waits until this was asked so often.
    pub(crate) async fn asked_times(&self, what: &str, times: usize) {
        eventually(&format!("{what} asked {times} times"), || self.asked(what) >= times).await;
    }
}
