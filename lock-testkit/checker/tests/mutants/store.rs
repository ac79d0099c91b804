//! The server of the lock under test: leases, a queue, tokens.

use std::collections::VecDeque;

use lock_testkit_checker::history::event::Kind;

use crate::flaw::Flaw;

pub(crate) const TTL: u64 = 1_000;

/// A grant, or a request in the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) grant: u64,
    pub(crate) client: usize,
    pub(crate) kind: Kind,
    pub(crate) permits: u32,
    /// Of a request in the queue: when it was made.
    pub(crate) expires: u64,
    pub(crate) token: u64,
}

pub(crate) enum Answer {
    Granted(u64),
    Queued,
    Refused,
}

pub(crate) struct Store {
    pub(crate) held: Vec<Entry>,
    pub(crate) queue: VecDeque<Entry>,
    limit: u32,
    flaw: Option<Flaw>,
    last_token: u64,
    last_grant_at: u64,
    last_release_at: u64,
}

impl Store {
    pub(crate) fn new(limit: u32, flaw: Option<Flaw>) -> Self {
        let (held, queue) = (Vec::new(), VecDeque::new());
        Self { held, queue, limit, flaw, last_token: 0, last_grant_at: 0, last_release_at: 0 }
    }

    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Takes the lock or a place in the queue; the same grant may be asked for again.
    pub(crate) fn ask(&mut self, now: u64, wish: Entry, waits: bool, skew: u64) -> Answer {
        if let Some(held) = self.held.iter_mut().find(|held| held.grant == wish.grant) {
            held.expires = held.expires.max(now + TTL);
            return Answer::Granted(held.token);
        }
        if self.queue.iter().any(|queued| queued.grant == wish.grant) {
            return Answer::Queued;
        }
        let passes = self.is(Flaw::ReaderPassesWriter) && wish.kind == Kind::Read;
        if self.admits(&wish) && (self.queue.is_empty() || passes) {
            return Answer::Granted(self.grant(now, wish, skew));
        }
        if !waits {
            return Answer::Refused;
        }
        self.queue.push_back(wish);
        Answer::Queued
    }

    pub(crate) fn renew(&mut self, now: u64, wish: Entry) -> bool {
        // A session keeps everything that its client has, whether it knows of it or not.
        let session = self.is(Flaw::AnonymousRetry);
        let mut found = false;
        for held in
            self.held.iter_mut().filter(|held| held.grant == wish.grant || session && held.client == wish.client)
        {
            held.expires = now + TTL;
            found = true;
        }
        if !found && (self.is(Flaw::BlindRenewal) || self.is(Flaw::RenewsAfterRelease)) {
            self.held.push(Entry { expires: now + TTL, ..wish });
            found = true;
        }
        found
    }

    pub(crate) fn release(&mut self, now: u64, grant: u64) -> bool {
        self.last_release_at = now;
        if self.is(Flaw::BlindDelete) && !self.held.is_empty() {
            self.held.clear();
            return true;
        }
        let before = self.held.len();
        self.held.retain(|held| held.grant != grant);
        before != self.held.len()
    }

    /// Takes back what an acquisition left; the grants that this lets in by mistake.
    pub(crate) fn cancel(&mut self, now: u64, grant: u64) -> Option<Entry> {
        self.release_only(grant);
        let place = self.queue.iter().position(|queued| queued.grant == grant)?;
        if self.is(Flaw::CancelledStays) {
            return None;
        }
        self.queue.remove(place);
        if !self.is(Flaw::FirstPredecessorOnly) {
            return None;
        }
        // Whoever waited for the one that left takes itself for the next holder.
        let mut follower = self.queue.remove(place)?;
        follower.token = self.grant(now, follower, 0);
        Some(follower)
    }

    fn release_only(&mut self, grant: u64) {
        self.held.retain(|held| held.grant != grant);
    }

    /// Sets the end of a grant that was made without one.
    pub(crate) fn set_expiry(&mut self, now: u64, grant: u64) {
        if let Some(held) = self.held.iter_mut().find(|held| held.grant == grant) {
            held.expires = now + TTL;
        }
    }

    /// Ends what has expired, and lets in whoever is first: those who are to be told.
    pub(crate) fn settle(&mut self, now: u64) -> Vec<Entry> {
        let keeps_ghosts = self.is(Flaw::GhostPermits);
        self.held.retain(|held| keeps_ghosts || held.expires > now);
        let mut told = Vec::new();
        while let Some(first) = self.queue.front().copied()
            && self.admits(&first)
            && !self.waits_for_later_writers(&first)
        {
            self.queue.pop_front();
            // It looked before the release and watches after it: the news have passed.
            let asked = first.expires;
            let missed = self.is(Flaw::LateWatch) && (asked..asked + 6).contains(&self.last_release_at);
            if missed {
                self.queue.push_front(first);
                break;
            }
            let token = self.grant(now, first, 0);
            told.push(Entry { token, ..first });
        }
        if self.is(Flaw::WakesEverybody) && !told.is_empty() {
            told.extend(&self.queue);
        }
        told
    }

    fn waits_for_later_writers(&self, first: &Entry) -> bool {
        let is_writer = |queued: &Entry| queued.kind == Kind::Write;
        self.is(Flaw::CountsLaterWriters) && first.kind == Kind::Read && self.queue.iter().any(is_writer)
    }

    fn admits(&self, wish: &Entry) -> bool {
        if self.is(Flaw::OrderByName) && self.held.iter().all(|held| held.client > wish.client) {
            return true;
        }
        match wish.kind {
            Kind::Read => self.held.iter().all(|held| held.kind == Kind::Read),
            Kind::Sem => self.held.iter().map(|held| held.permits).sum::<u32>() + wish.permits <= self.limit,
            _ => self.held.is_empty(),
        }
    }

    fn grant(&mut self, now: u64, wish: Entry, skew: u64) -> u64 {
        let forgotten = self.is(Flaw::ExpiringCounter) && now > self.last_grant_at + 150;
        self.last_grant_at = now;
        self.last_token = if forgotten { 1 } else { self.last_token + 1 };
        let token = if self.is(Flaw::ClientClockToken) { (now + skew).max(1) } else { self.last_token };
        let expires = if self.is(Flaw::ExpiryInSecondStep) { u64::MAX } else { now + TTL };
        self.held.push(Entry { token, expires, ..wish });
        token
    }
}
