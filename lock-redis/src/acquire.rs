//! One request for a lock of any kind: may I have it now.
//!
//! A free mutex is taken by one short script, and so are locks of the other kinds that are asked for together. Everything else, and a
//! mutex that is shared with Redisson, takes the long one.

use std::sync::Arc;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Grant};
use lock_core::{Error, ErrorKind, GrantId, Phase};

use crate::client::identity::Identity;
use crate::client::link::Caller;
use crate::client::link::batches::BatchableRequest;
use crate::client::link::request::Failed;
use crate::client::links::Links;
use crate::confirm::Confirmation;
use crate::store::call::{
    self, Call, MutexText, OwnerText, Request, ShortRequest, ShortWay, milliseconds, whole_milliseconds,
};
use crate::store::keys::{Form, KeySpace, Keys};
use crate::store::scripts;
use crate::wait::machine::{Enqueued, Pause};
use crate::wait::queue::WaitQueues;

/// Asks for locks.
#[derive(Debug)]
pub(crate) struct Acquirer {
    links: Arc<Links>,
    keys: Arc<KeySpace>,
    identity: Arc<Identity>,
    queues: Arc<WaitQueues>,
    /// The check that replicas have a grant, if that is wanted.
    confirmation: Option<Arc<Confirmation>>,
    pub(crate) owner: Arc<OwnerText>,
}

/// Whether an attempt that is not granted the lock stays in the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stays {
    No,
    /// At the place that it had, if it had one.
    AtTicket(Option<u64>),
}

/// The answer to an acquisition.
pub(crate) enum AcquireReply {
    Granted(Grant),
    Queued(Enqueued),
}

/// The answer of the short way.
pub(crate) enum ShortAcquire {
    Granted(Grant),
    Held,
    AskTheQueue,
    /// There is none, or it failed like this.
    NotAsked(Option<Failed>),
}

/// Tells of a reply of the short way that breaks its rule.
const NO_TOKEN: &str = "the server granted the lock without a token";

impl Acquirer {
    /// Asks over these links for locks whose waiters are in these queues.
    pub(crate) fn new(
        links: &Arc<Links>,
        keys: &Arc<KeySpace>,
        identity: &Arc<Identity>,
        queues: &Arc<WaitQueues>,
        owner: &Arc<OwnerText>,
        confirmation: Option<Arc<Confirmation>>,
    ) -> Self {
        let (links, keys, identity, queues) = (links.clone(), keys.clone(), identity.clone(), queues.clone());
        Self { links, keys, identity, queues, confirmation, owner: owner.clone() }
    }

    /// Tries once; a grant counts only if it is confirmed where that is wanted.
    pub(crate) async fn try_acquire(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        let keys = self.keys.checked(&attempt.name, attempt.kind)?;
        let (until, caller) = (self.links.until(), self.links.caller());
        let granted = match self.short(&keys, attempt, until, caller.as_ref()).await? {
            ShortAcquire::Granted(grant) => Some(grant),
            ShortAcquire::Held => None,
            ShortAcquire::AskTheQueue => self.once(&keys, attempt, until, None).await?,
            ShortAcquire::NotAsked(failed) => self.once(&keys, attempt, until, failed).await?,
        };
        drop(caller);
        self.confirmed(attempt, granted, until).await
    }

    /// Lets a grant count only if it is confirmed by `until`, where that is wanted.
    pub(crate) async fn confirmed(
        &self,
        attempt: &Attempt,
        granted: Option<Grant>,
        until: BootInstant,
    ) -> Result<Option<Grant>, Error> {
        match (granted, &self.confirmation) {
            (Some(grant), Some(confirmation)) => {
                // Boxed, since it is rare, and would be in the future of every acquisition.
                Box::pin(confirmation.confirmed(attempt, grant, until)).await.map(Some)
            }
            _ => Ok(granted),
        }
    }

    /// Takes a lock that leaves room and for which nobody waits, in the short way if it has one.
    pub(crate) async fn short(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        until: BootInstant,
        caller: Option<&Caller<'_>>,
    ) -> Result<ShortAcquire, Error> {
        match (keys.form, caller) {
            (Form::Text, _) => self.short_mutex(keys, attempt, until, caller).await,
            // One request by itself would gain nothing: the long way begins with the short one.
            (Form::Holders, Some(caller)) if caller.has_company && !self.queues.is_busy(&keys.lock) => {
                // Boxed: it would be in the future of every acquisition of a mutex.
                Box::pin(self.short_holder(keys, attempt, until, caller)).await
            }
            (Form::Holders | Form::Redisson, _) => Ok(ShortAcquire::NotAsked(None)),
        }
    }

    async fn short_mutex(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        until: BootInstant,
        caller: Option<&Caller<'_>>,
    ) -> Result<ShortAcquire, Error> {
        let mut digits = [0; GrantId::LENGTH];
        let nonce = attempt.id.encode(&mut digits);
        let mut call = Call::of_two(&keys.lock, keys.beside(), ":q").and_key(&keys.tokens(), "");
        call.push_parts(&MutexText::beginning(nonce, &self.identity.client, &self.owner.of(&attempt.owner)?));
        call.push_number(whole_milliseconds(attempt.ttl));
        let short = ShortRequest { way: ShortWay::Acquire, call, until };
        let (reply, _) = self.links.run_short_for(attempt, short, &scripts::ACQUIRE_SHORT, None, caller).await?;
        let (sign, token) = self.links.short_reply(&reply, nonce, Phase::Acquire)?;
        match (sign, token) {
            (b'+', Some(token)) => Ok(ShortAcquire::Granted(Grant::new(Some(token), reply.sent_at, attempt.ttl))),
            (b'-', _) => Ok(ShortAcquire::Held),
            (b'?', _) => Ok(ShortAcquire::AskTheQueue),
            _ => Err(attempt.error(ErrorKind::Protocol, Phase::Acquire, NO_TOKEN)),
        }
    }

    /// Takes a lock of another kind, together with what others ask for at the same moment.
    async fn short_holder(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        until: BootInstant,
        caller: &Caller<'_>,
    ) -> Result<ShortAcquire, Error> {
        let mut digits = [0; GrantId::LENGTH];
        let nonce = attempt.id.encode(&mut digits);
        let mut call = Call::of_two(&keys.lock, keys.beside(), ":q").and_key(&keys.tokens(), "");
        call = call.with([nonce, &self.identity.client]);
        call.push_number(whole_milliseconds(attempt.ttl));
        call = call.with([&*self.owner.of(&attempt.owner)?, &call::mode(attempt)]);
        let request = BatchableRequest::new(ShortRequest { way: ShortWay::AcquireHolder, call, until });
        let reply = match self.links.run_with_others(attempt, &request, caller).await {
            Some(Ok(reply)) => reply,
            Some(Err(failed)) => return Ok(ShortAcquire::NotAsked(Some(failed))),
            None => return Ok(ShortAcquire::NotAsked(None)),
        };
        match self.links.short_reply(&reply, nonce, Phase::Acquire)? {
            (b'+', Some(token)) => Ok(ShortAcquire::Granted(Grant::new(Some(token), reply.sent_at, attempt.ttl))),
            (b'?', _) => {
                self.queues.found_held(&keys.lock);
                Ok(ShortAcquire::AskTheQueue)
            }
            _ => Err(attempt.error(ErrorKind::Protocol, Phase::Acquire, NO_TOKEN)),
        }
    }

    /// Tries once. It goes on until `until` while the server has more to clear up than one run of a script may.
    async fn once(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        until: BootInstant,
        mut failed: Option<Failed>,
    ) -> Result<Option<Grant>, Error> {
        loop {
            match self.ask(keys, attempt, Stays::No, until, failed.take()).await? {
                AcquireReply::Granted(grant) => return Ok(Some(grant)),
                AcquireReply::Queued(queued) if queued.pause == Pause::None && SystemClock.now() < until => {}
                AcquireReply::Queued(queued) if queued.pause == Pause::None => {
                    // Nobody need hold it: those in its queue who are dead were not all removed in time.
                    let what = "the queue has many dead waiters, and there was no time to remove all of them";
                    let error = attempt.error(ErrorKind::Unavailable, Phase::Acquire, what);
                    return Err(error.with_server(self.links.server()));
                }
                AcquireReply::Queued(_) => return Ok(None),
            }
        }
    }

    /// Asks in the long way: again, if asking in the short one has failed.
    pub(crate) async fn ask(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        stays: Stays,
        until: BootInstant,
        failed: Option<Failed>,
    ) -> Result<AcquireReply, Error> {
        let nonce = attempt.id.to_string();
        let ttl = milliseconds(attempt.ttl);
        let owner = self.owner.of(&attempt.owner)?;
        let (stays, ticket) = match stays {
            Stays::No => ("", None),
            Stays::AtTicket(ticket) => ("1", ticket),
        };
        // "0" says that this attempt has been sent before, although no ticket came back.
        let before = if attempt.first_sent().is_none() { String::new() } else { "0".to_owned() };
        let ticket = ticket.map_or(before, |ticket| ticket.to_string());
        let mode = call::mode(attempt);
        let args = [
            nonce.as_bytes(),
            self.identity.client.as_bytes(),
            ttl.as_bytes(),
            owner.as_bytes(),
            stays.as_bytes(),
            ticket.as_bytes(),
            self.identity.channels.as_bytes(),
            keys.shared_arg(),
            mode.as_bytes(),
        ];
        let all = keys.all();
        let request = Request::new(&keys.scripts().acquire, &all, &args);
        let (reply, _) = self.links.run_for_after(failed, attempt, request, Phase::Acquire, until).await?;
        let mut fields = self.links.fields(reply.value, &nonce, Phase::Acquire)?;
        if fields.number()? == 1 {
            let token = fields.token()?;
            let valid_for = fields.milliseconds()?;
            self.queues.found_free(&keys.lock);
            return Ok(AcquireReply::Granted(granted_for(attempt, Grant::new(Some(token), reply.sent_at, valid_for))));
        }
        let pause = Pause::of(fields.number()?);
        let mut unsigned = || fields.number().map(|number| u64::try_from(number).unwrap_or_default());
        let (ticket, known, last_token) = (unsigned()?, unsigned()? == 1, unsigned()?);
        Ok(AcquireReply::Queued(Enqueued { sent_at: reply.sent_at, ticket, known, pause, last_token }))
    }
}

/// A grant for less than its TTL was handed over for the claim time, and is to be claimed.
pub(crate) fn granted_for(attempt: &Attempt, grant: Grant) -> Grant {
    if grant.valid_for.as_millis() < attempt.ttl.as_millis() { grant.with_claim() } else { grant }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::driver::Kind;

    use super::*;

    #[test]
    fn a_grant_for_less_than_its_ttl_is_to_be_claimed() {
        // The server counts whole milliseconds.
        let ttl = Duration::from_micros(2_000_900);
        let attempt = Attempt::new("a".into(), Kind::Mutex, lock_core::Owner::new(), ttl).unwrap();
        for (ms, claim) in [(1999, true), (2000, false), (3000, false)] {
            let grant = Grant::new(None, SystemClock.now(), Duration::from_millis(ms));
            assert_eq!(granted_for(&attempt, grant).claim, claim, "{ms}");
        }
    }
}
