//! Registry of what this client has at the server, as far as it knows.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, IdMap, wait};
use lock_core::{Error, GrantId, Owner};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use crate::client::cas::{CasNumber, OwnItem};
use crate::config::LongestLease;
use crate::error::Failure;
use crate::store::keys::{Key, Keys, Nonce};

/// Every attempt that has, or may have, anything at the server: those that hold or wait, and those that the core has not
/// finished undoing.
pub(crate) struct Registry {
    keys: Arc<Keys>,
    longest: LongestLease,
    entries: Mutex<IdMap<GrantId, Arc<Entry>>>,
}

/// One attempt, and what it has.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) nonce: Nonce,
    pub(crate) grant: GrantId,
    pub(crate) owner: Owner,
    /// The lock's key, or what its keys begin with.
    pub(crate) lock: Key,
    /// Held by whoever changes what the attempt has: a claim goes on after its caller has gone, and who undoes it waits.
    turn: Arc<Turn<()>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pieces: Vec<Piece>,
    /// Keys whose claims were not answered: as few as the pieces of one lock.
    unsure: Vec<(Key, Unanswered)>,
    kept_until: BootInstant,
    /// The latest end that was asked for, answered or not.
    asked_until: BootInstant,
    /// Keys whose release was asked for and not answered yet: it may be carried out at any time.
    releases: Vec<AskedRelease>,
    /// The text of its record, until the server is known to have it.
    to_describe: Option<Description>,
    is_shown: bool,
    is_ending: bool,
    /// Whether one of its keys was lost. What it has beside that does not count any more.
    is_lost: bool,
}

/// The part of a holder's record that its entry does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) token: Option<u64>,
    /// Beginning of the hold, in ms since 1970 by the holder's clock.
    pub(crate) since: u64,
    /// Whether it waits for others to leave.
    pub(crate) waits: bool,
    /// The time for which the server is to keep it.
    pub(crate) seconds: u32,
}

/// A key that has the attempt's number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) key: Key,
    /// The number by which its item is known to be unchanged.
    pub(crate) seen: CasNumber,
}

/// A key whose release was asked for.
#[derive(Debug)]
struct AskedRelease {
    key: Key,
    /// Whether an earlier request for it was not answered: then a later one that is refused says nothing of that.
    is_repeated: bool,
}

/// The claims of one key that were not answered: the last one, and all earlier ones together. What waits in an outage claims again
/// and again.
#[derive(Debug)]
struct Unanswered {
    /// The end of the last one's time: from then on it cannot be carried out any more.
    last: Option<BootInstant>,
    /// The end of that of all others, and how many they are.
    earlier: Option<(BootInstant, u32)>,
}

impl Registry {
    pub(crate) fn new(keys: &Arc<Keys>, longest: LongestLease) -> Self {
        Self { keys: keys.clone(), longest, entries: Mutex::default() }
    }

    pub(crate) fn get(&self, id: GrantId) -> Option<Arc<Entry>> {
        self.all().get(&id).cloned()
    }

    /// The attempt's entry, made when it first asks; an error if no lock has such a name or such a lease.
    pub(crate) fn register(&self, attempt: &Attempt) -> Result<Arc<Entry>, Error> {
        self.longest.check(attempt, attempt.ttl)?;
        let lock = self.keys.lock(&attempt.name, attempt.kind)?;
        let make = || Arc::new(Entry::new(attempt.id, attempt.owner.clone(), lock));
        Ok(self.all().entry(attempt.id).or_insert_with(make).clone())
    }

    /// Forgets an attempt if it has nothing; returns whether it has nothing.
    pub(crate) fn close(&self, id: GrantId) -> bool {
        let mut all = self.all();
        let is_empty = all.get(&id).is_none_or(|entry| entry.is_empty());
        if is_empty {
            all.remove(&id);
        }
        is_empty
    }

    /// Forgets an attempt, whatever it may have.
    pub(crate) fn forget(&self, id: GrantId) {
        self.all().remove(&id);
    }

    fn all(&self) -> MutexGuard<'_, IdMap<GrantId, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Notes a claim of a key, in a request that ends by this instant.
    fn claimed(&mut self, key: &Key, until: BootInstant) {
        match self.unsure.iter_mut().find(|(unsure, _)| unsure == key) {
            Some((_, claims)) => claims.claimed(until),
            None => self.unsure.push((key.clone(), Unanswered { last: Some(until), earlier: None })),
        }
    }

    /// The last claim of a key was answered.
    fn answered(&mut self, key: &Key) {
        if let Some((_, claims)) = self.unsure.iter_mut().find(|(unsure, _)| unsure == key) {
            claims.answered();
        }
    }

    /// Forgets the claims that cannot be carried out any more, and returns those that may be yet.
    fn unsure(&mut self) -> &[(Key, Unanswered)] {
        let now = SystemClock.now();
        self.unsure.retain_mut(|(_, claims)| claims.may_come(now));
        &self.unsure
    }
}

impl Unanswered {
    fn claimed(&mut self, until: BootInstant) {
        if let Some(last) = self.last.replace(until) {
            let (end, many) = self.earlier.unwrap_or((last, 0));
            self.earlier = Some((end.max(last), many.saturating_add(1)));
        }
    }

    /// The last one was answered.
    fn answered(&mut self) {
        if self.last.take().is_none() {
            self.earlier = self.earlier.filter(|(_, many)| *many > 1).map(|(end, many)| (end, many - 1));
        }
    }

    /// Whether one of them may be carried out yet.
    fn may_come(&mut self, now: BootInstant) -> bool {
        self.last = self.last.filter(|end| now < *end);
        self.earlier = self.earlier.filter(|(end, _)| now < *end);
        self.last.is_some() || self.earlier.is_some()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry").field(&self.entries).finish()
    }
}

impl Entry {
    fn new(grant: GrantId, owner: Owner, lock: Key) -> Self {
        let state = State {
            pieces: Vec::new(),
            unsure: Vec::new(),
            kept_until: BootInstant::from_origin(Duration::ZERO),
            asked_until: BootInstant::from_origin(Duration::ZERO),
            releases: Vec::new(),
            to_describe: None,
            is_shown: false,
            is_ending: false,
            is_lost: false,
        };
        Self { nonce: Nonce::of(grant), grant, owner, lock, turn: Arc::default(), state: Mutex::new(state) }
    }

    /// The right to change what the attempt has.
    pub(crate) async fn turn(&self) -> OwnedMutexGuard<()> {
        self.turn.clone().lock_owned().await
    }

    /// The right to change what the attempt has, by this instant. Whoever has it longer waits for an answer.
    pub(crate) async fn turn_by(&self, until: BootInstant) -> Result<OwnedMutexGuard<()>, Failure> {
        if let Ok(turn) = self.turn.clone().try_lock_owned() {
            return Ok(turn);
        }
        // Seldom, and so not a part of every request's future.
        let turn = Box::pin(wait::before(&SystemClock, |_| until, self.turn())).await;
        turn.ok_or_else(Failure::unanswered)
    }

    /// The attempt's item with this number.
    pub(crate) fn own(&self, seen: CasNumber) -> OwnItem {
        OwnItem { value: self.nonce.number(), seen }
    }

    pub(crate) fn pieces(&self) -> Vec<Piece> {
        self.state().pieces.clone()
    }

    pub(crate) fn has_pieces(&self) -> bool {
        !self.state().pieces.is_empty()
    }

    /// The highest CAS number of its pieces.
    pub(crate) fn newest_cas(&self) -> u64 {
        self.state().pieces.iter().map(|piece| piece.seen.cas).max().unwrap_or_default()
    }

    /// A key is claimed, in a request that ends by this instant.
    pub(crate) fn claiming(&self, key: &Key, until: BootInstant) {
        let mut state = self.state();
        state.is_ending = false;
        state.claimed(key, until);
    }

    /// The last claim of a key was answered: it is not this attempt's.
    pub(crate) fn refused(&self, key: &Key) {
        self.state().answered(key);
    }

    /// No claim of a key can be carried out any more.
    pub(crate) fn settled(&self, key: &Key) {
        self.state().unsure.retain(|(unsure, _)| unsure != key);
    }

    /// The last claim of a key was answered: it is. In one step, so that the attempt has something at any time.
    pub(crate) fn won(&self, key: &Key, seen: CasNumber) {
        let mut state = self.state();
        state.answered(key);
        state.releases.retain(|asked| asked.key != *key);
        match state.pieces.iter_mut().find(|piece| piece.key == *key) {
            Some(piece) => piece.seen = seen,
            None => state.pieces.push(Piece { key: key.clone(), seen }),
        }
    }

    /// A key's item was renewed. Answers may overtake each other, and the release: numbers only grow, and what was released
    /// does not come back.
    pub(crate) fn renewed(&self, key: &Key, seen: CasNumber) {
        let mut state = self.state();
        if let Some(piece) = state.pieces.iter_mut().find(|piece| piece.key == *key && piece.seen.cas < seen.cas) {
            piece.seen = seen;
        }
    }

    /// A key is not this attempt's (any more).
    pub(crate) fn lost(&self, key: &Key) {
        let mut state = self.state();
        state.pieces.retain(|piece| piece.key != *key);
        state.releases.retain(|asked| asked.key != *key);
    }

    /// These pieces may be there until then: nobody answered when they were released.
    pub(crate) fn doubt(&self, pieces: &[Piece], until: BootInstant) {
        let mut state = self.state();
        let is_doubtful = |key: &Key| pieces.iter().any(|doubtful| doubtful.key == *key);
        state.pieces.retain(|piece| !is_doubtful(&piece.key));
        state.releases.retain(|asked| !is_doubtful(&asked.key));
        pieces.iter().for_each(|piece| state.claimed(&piece.key, until));
    }

    /// The release of these pieces is about to be asked for.
    pub(crate) fn asks_release(&self, pieces: &[Piece]) {
        let mut state = self.state();
        for Piece { key, .. } in pieces {
            match state.releases.iter_mut().find(|asked| asked.key == *key) {
                Some(asked) => asked.is_repeated = true,
                None => state.releases.push(AskedRelease { key: key.clone(), is_repeated: false }),
            }
        }
    }

    /// The last request for a key's release was not carried out, and is not on its way any more.
    pub(crate) fn release_refused(&self, key: &Key) {
        self.state().releases.retain(|asked| asked.key != *key || asked.is_repeated);
    }

    /// Whether a key's release was asked for, without an answer so far.
    pub(crate) fn is_release_asked(&self, key: &Key) -> bool {
        self.state().releases.iter().any(|asked| asked.key == *key)
    }

    /// Whether a key may be gone because of an earlier, unanswered request for its release. When all is released, only keys whose release
    /// was asked for before are noted.
    pub(crate) fn may_be_released(&self, key: &Key) -> bool {
        let state = self.state();
        state.releases.iter().any(|asked| asked.key == *key && (asked.is_repeated || state.is_ending))
    }

    /// Whether a key has been released, or is about to be with all the others: that it is gone is no loss then.
    pub(crate) fn is_released(&self, key: &Key) -> bool {
        let state = self.state();
        state.is_ending || !state.pieces.iter().any(|piece| piece.key == *key)
    }

    /// Keys whose claims were not answered and may be carried out yet.
    pub(crate) fn unsure(&self) -> Vec<Key> {
        self.state().unsure().iter().map(|(key, _)| key.clone()).collect()
    }

    /// The server keeps the grant for this long from `sent_at`; what it was told before still holds.
    pub(crate) fn kept(&self, sent_at: BootInstant, ttl: Duration) {
        let mut state = self.state();
        state.kept_until = state.kept_until.max(sent_at.plus(ttl));
    }

    /// The time for which a key is asked for: the TTL, or the rest of what the grant was extended to.
    pub(crate) fn lasts(&self, ttl: Duration) -> Duration {
        ttl.max(self.kept_until().since(SystemClock.now()))
    }

    /// The server is about to be asked to keep the grant until then. Returns until when to ask for: never for less than another
    /// request has asked for, which may be carried out before this one.
    pub(crate) fn asks(&self, until: BootInstant) -> BootInstant {
        let mut state = self.state();
        state.asked_until = state.asked_until.max(until).max(state.kept_until);
        state.asked_until
    }

    /// The instant until which the server keeps the grant, at least.
    pub(crate) fn kept_until(&self) -> BootInstant {
        self.state().kept_until
    }

    /// Has a record of this holder say so, instead of what it was to say before.
    pub(crate) fn describe(&self, description: Description) {
        self.state().to_describe = Some(description);
    }

    /// Returns the text that a record has yet to say of this holder.
    pub(crate) fn to_describe(&self) -> Option<Description> {
        self.state().to_describe
    }

    /// The server has a record that says so.
    pub(crate) fn described(&self, description: Description) {
        self.state().to_describe.take_if(|to_describe| *to_describe == description);
    }

    /// Whether a record may describe this holder at the server.
    pub(crate) fn is_shown(&self) -> bool {
        self.state().is_shown
    }

    pub(crate) fn show(&self) {
        self.state().is_shown = true;
    }

    /// Marks the holder as not described; returns whether it was.
    pub(crate) fn hide(&self) -> bool {
        std::mem::take(&mut self.state().is_shown)
    }

    /// Whether it is being released: a renewal that failed is not tried again.
    pub(crate) fn is_ending(&self) -> bool {
        self.state().is_ending
    }

    pub(crate) fn end(&self) {
        self.state().is_ending = true;
    }

    /// Whether one of its keys was lost, whoever was told so.
    pub(crate) fn is_lost(&self) -> bool {
        self.state().is_lost
    }

    pub(crate) fn lose(&self) {
        self.state().is_lost = true;
    }

    /// Whether no claim can be carried out any more that was not answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.state().unsure().is_empty()
    }

    /// Whether the attempt has nothing, for certain.
    pub(crate) fn is_empty(&self) -> bool {
        let mut state = self.state();
        state.pieces.is_empty() && state.unsure().is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
