//! One lock in memory: who holds it, who waits, and the rules by which a request is admitted.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, oneshot};

use super::holders::{Holders, Holding, weight};
use super::queue::{QueuedRequest, RequestQueue};
use crate::clock::BootInstant;
use crate::driver::{Attempt, Grant, Kind};
use crate::driver::{Holder, Inspection, Waiter};
use crate::error::{Error, ErrorKind, Phase};
use crate::owner::{GrantId, Owner};
use crate::token::FencingToken;

/// One lock.
#[derive(Debug)]
pub(super) struct Lock {
    holders: Holders,
    queue: RequestQueue,
    /// Wakes waiters that sleep past a new holder's end.
    sooner: Option<Arc<Notify>>,
    /// The latest instant to which a waiter sleeps.
    slept_to: BootInstant,
}

/// The source of new tokens.
pub(super) type Fence<'a> = &'a mut dyn FnMut() -> FencingToken;

impl Default for Lock {
    fn default() -> Self {
        let slept_to = BootInstant::from_origin(Duration::ZERO);
        Self { holders: Holders::default(), queue: RequestQueue::default(), sooner: None, slept_to }
    }
}

impl Lock {
    pub(super) fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    /// Grants the lock to this request, or says `None`; idempotent by the attempt's id.
    pub(super) fn ask(
        &mut self,
        attempt: &Attempt,
        client: u64,
        now: BootInstant,
        fence: Fence<'_>,
    ) -> Result<Option<Grant>, Error> {
        self.check(attempt)?;
        if let Some(held) = self.holders.get(attempt.id) {
            return Ok(Some(Grant::new(Some(held.token), now, held.expires.since(now))));
        }
        let enters_again = self.holders.any().is_some_and(|held| same_owner(held, attempt.kind, &attempt.owner));
        if (self.queue.is_empty() || enters_again) && self.admits(attempt.kind, &attempt.owner) {
            return Ok(Some(self.grant(
                attempt.id,
                client,
                attempt.kind,
                attempt.owner.clone(),
                attempt.ttl,
                now,
                fence,
            )));
        }
        Ok(None)
    }

    /// Puts a grant under the id of this attempt, with a lease that lasts for its TTL at least; its token, if it is there.
    pub(super) fn adopt(&mut self, from: GrantId, attempt: &Attempt, client: u64, now: BootInstant) -> Option<Grant> {
        let held = self.holders.remove(attempt.id).or_else(|| self.holders.remove(from))?;
        let (token, owner, expires) = (held.token, attempt.owner.clone(), held.expires.max(now.plus(attempt.ttl)));
        self.holders.insert(Holding { id: attempt.id, client, owner, expires, ..held });
        Some(Grant::new(Some(token), now, attempt.ttl))
    }

    /// Puts a grant under another id, under which it ends after this time; whether it is there.
    pub(super) fn leave(&mut self, id: GrantId, left: GrantId, time: Duration, now: BootInstant) -> bool {
        let Some(held) = self.holders.remove(left).or_else(|| self.holders.remove(id)) else { return false };
        let expires = now.plus(time);
        self.holders.insert(Holding { id: left, expires, ..held });
        self.ends_by(expires);
        true
    }

    /// Puts the request at the end of the queue.
    pub(super) fn enqueue(&mut self, attempt: &Attempt, client: u64, now: BootInstant) -> oneshot::Receiver<Grant> {
        let (tell, told) = oneshot::channel();
        let Attempt { id, kind, ttl, .. } = *attempt;
        self.queue.push(QueuedRequest { id, client, kind, owner: attempt.owner.clone(), ttl, since: now, tell });
        told
    }

    pub(super) fn is_held_by(&self, id: GrantId) -> bool {
        self.holders.get(id).is_some()
    }

    /// Extends a grant that is there.
    pub(super) fn renew(&mut self, id: GrantId, ttl: Duration, now: BootInstant) -> bool {
        self.holders.renew(id, ttl, now)
    }

    /// Takes a grant or a place in the queue away, and says which grant it was.
    pub(super) fn remove(&mut self, id: GrantId) -> Option<Holding> {
        self.queue.remove(id);
        self.remove_grant(id)
    }

    /// Takes a grant away; a request in the queue stays there.
    pub(super) fn remove_grant(&mut self, id: GrantId) -> Option<Holding> {
        self.holders.remove(id)
    }

    /// Every grant, taken away.
    pub(super) fn remove_all(&mut self) -> Vec<Holding> {
        self.holders.remove_all()
    }

    /// Turns a write grant into a read grant; idempotent.
    pub(super) fn downgrade(&mut self, id: GrantId) -> bool {
        self.holders.change(id, |_| Kind::Read)
    }

    /// Leaves a grant `keep` of its permits, or fewer if it has fewer.
    pub(super) fn shrink(&mut self, id: GrantId, keep: u32) -> bool {
        self.holders.change(id, |kind| match kind {
            Kind::Permits { permits, limit } => Kind::Permits { permits: permits.min(keep), limit },
            other => other,
        })
    }

    /// Drops expired grants and lets in whoever is next: the direct hand-over.
    pub(super) fn settle(&mut self, now: BootInstant, fence: Fence<'_>) {
        self.holders.expire(now);
        while let Some(QueuedRequest { id, client, kind, owner, ttl, tell, .. }) = self.next_let_in() {
            if tell.is_closed() {
                continue;
            }
            let grant = self.grant(id, client, kind, owner, ttl, now, fence);
            if tell.send(grant.with_woken_at(now)).is_err() {
                self.remove(id);
            }
        }
    }

    /// Takes the first request out of the queue if it fits, or one whose owner is inside: that may stand behind others, if it came before
    /// its owner was inside, and need not wait for its turn.
    fn next_let_in(&mut self) -> Option<QueuedRequest> {
        if self.queue.front().is_some_and(|first| first.tell.is_closed() || self.admits(first.kind, &first.owner)) {
            return self.queue.pop();
        }
        let inside = self.holders.any().filter(|held| held.kind == Kind::Reentrant)?;
        self.queue.pop_of(inside.owner.id())
    }

    /// The instant at which the first grant ends; a waiter sleeps until then, or until it is told that another one ends sooner.
    pub(super) fn watch(&mut self) -> (OwnedNotified, BootInstant) {
        let end = self.holders.first_end();
        self.slept_to = self.slept_to.max(end);
        (self.sooner.get_or_insert_default().clone().notified_owned(), end)
    }

    pub(super) fn inspect(&self, now: BootInstant) -> Inspection {
        let mut inspection = Inspection::default();
        inspection.holders.extend(self.holders.in_order().into_iter().take(Inspection::MOST).map(|held| Holder {
            grant: Some(held.id),
            owner: Some(held.owner.clone()),
            token: Some(held.token.as_u64()),
            permits: weight(held.kind),
            shared: matches!(held.kind, Kind::Read | Kind::Permits { .. }),
            held_for: Some(now.since(held.since)),
            expires_in: Some(held.expires.since(now)),
        }));
        inspection.waiters.extend(self.queue.iter().take(Inspection::MOST).map(|waiting| Waiter {
            attempt: waiting.id,
            owner: Some(waiting.owner.clone()),
            permits: weight(waiting.kind),
            waiting_for: Some(now.since(waiting.since)),
        }));
        inspection.more_holders = self.holders.len().saturating_sub(Inspection::MOST) as u64;
        inspection.more_waiters = self.queue.len().saturating_sub(Inspection::MOST) as u64;
        inspection
    }

    /// The sum of what the holders hold.
    pub(super) fn used(&self) -> u64 {
        self.holders.used()
    }

    /// Refuses requests that do not fit what is there: another kind at a shared key, another limit.
    fn check(&self, attempt: &Attempt) -> Result<(), Error> {
        // What is there was compared with what was there before it: one of them tells of all.
        let present = self.holders.any().map(|held| held.kind).or_else(|| self.queue.front().map(|first| first.kind));
        match (present, attempt.kind) {
            (Some(Kind::Permits { limit: a, .. }), Kind::Permits { limit: b, .. }) if a != b => {
                let what = format!("the permits in use were asked for with a limit of {a}, not {b}");
                Err(attempt.error(ErrorKind::LimitMismatch, Phase::Acquire, what))
            }
            (Some(a), b) if a.space() != b.space() => {
                let what = format!("the key is in use by a {}, not a {}", a.space(), b.space());
                Err(attempt.error(ErrorKind::Protocol, Phase::Acquire, what))
            }
            _ => Ok(()),
        }
    }

    /// Whether the present holders leave room for this request.
    fn admits(&self, kind: Kind, owner: &Owner) -> bool {
        match kind {
            Kind::Read => self.holders.any().is_none_or(|held| held.kind == Kind::Read),
            Kind::Reentrant => self.holders.any().is_none_or(|held| same_owner(held, kind, owner)),
            Kind::Permits { permits, limit } => {
                u64::from(limit).checked_sub(self.used()).is_some_and(|free| u64::from(permits) <= free)
            }
            _ => self.holders.is_empty(),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a holding, from an attempt or from a waiter")]
    fn grant(
        &mut self,
        id: GrantId,
        client: u64,
        kind: Kind,
        owner: Owner,
        ttl: Duration,
        now: BootInstant,
        fence: Fence<'_>,
    ) -> Grant {
        // A re-entry of the same owner keeps the token.
        let token = match self.holders.any().filter(|held| same_owner(held, kind, &owner)) {
            Some(held) => held.token,
            None => fence(),
        };
        let expires = now.plus(ttl);
        self.holders.insert(Holding { id, client, kind, owner, token, since: now, expires });
        self.ends_by(expires);
        Grant::new(Some(token), now, ttl)
    }

    /// A grant ends at this instant: waiters that would sleep past it are woken.
    fn ends_by(&mut self, expires: BootInstant) {
        if expires < self.slept_to {
            self.slept_to = expires;
            if let Some(sooner) = &self.sooner {
                sooner.notify_waiters();
            }
        }
    }
}

fn same_owner(held: &Holding, kind: Kind, owner: &Owner) -> bool {
    kind == Kind::Reentrant && held.owner.id() == owner.id()
}
