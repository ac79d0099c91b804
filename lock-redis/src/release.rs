//! Releases, cancellations and changes of what is held: take it back, undo that, let it end by itself.

use std::sync::Arc;

use lock_core::clock::BootInstant;
use lock_core::driver::{Attempt, Cancelled, Released};
use lock_core::{Error, ErrorKind, GrantId, Phase};

use crate::cause::Cause;
use crate::client::identity::Identity;
use crate::client::link::Caller;
use crate::client::link::batches::BatchableRequest;
use crate::client::link::request::Failed;
use crate::client::links::{Links, SentBefore};
use crate::client::push;
use crate::store::call::{Call, MutexText, OwnerText, Request, ShortRequest, ShortWay};
use crate::store::keys::{Form, KeySpace, Keys};
use crate::store::scripts::{self, Script};
use crate::wait::queue::WaitQueues;

/// The reply of a script that made room if it could not let in at once all who find room.
pub(crate) const MORE: i64 = 2;

/// Releases grants, cancels attempts, and changes what is held.
#[derive(Debug)]
pub(crate) struct Releaser {
    links: Arc<Links>,
    keys: Arc<KeySpace>,
    identity: Arc<Identity>,
    queues: Arc<WaitQueues>,
    owner: Arc<OwnerText>,
}

impl Releaser {
    /// Releases over these links; the queues are told who comes next.
    pub(crate) fn new(
        links: &Arc<Links>,
        keys: &Arc<KeySpace>,
        identity: &Arc<Identity>,
        queues: &Arc<WaitQueues>,
        owner: &Arc<OwnerText>,
    ) -> Self {
        let (links, keys, identity, queues) = (links.clone(), keys.clone(), identity.clone(), queues.clone());
        Self { links, keys, identity, queues, owner: owner.clone() }
    }

    /// Releases a grant: in the short way if nobody is known to wait.
    pub(crate) async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        let (until, caller) = (self.links.until(), self.links.caller());
        let keys = &self.keys.of(&attempt.name, attempt.kind);
        let (before, failed) = match self.short(keys, attempt, until, caller.as_ref()).await? {
            ShortRelease::Done => return Ok(Released::Done),
            ShortRelease::TakeLongWay(before) => (before, None),
            ShortRelease::Failed(failed) => (SentBefore::NEVER, Some(failed)),
        };
        let script = &keys.scripts().release;
        let request = ReleaseRequest { script, keys, attempt, mode: "", phase: Phase::Release, until };
        // Boxed: most releases go the short way, and their futures stay small.
        Box::pin(self.run(request, before, failed)).await
    }

    /// Undoes an attempt, by this deadline.
    pub(crate) async fn cancel(&self, attempt: &Attempt, until: BootInstant) -> Result<Cancelled, Error> {
        if attempt.first_sent().is_none() {
            // Nothing was ever sent.
            self.queues.forget(attempt.id);
            return Ok(Cancelled::Settled);
        }
        let keys = &self.keys.of(&attempt.name, attempt.kind);
        let script = &keys.scripts().cancel;
        let request = ReleaseRequest { script, keys, attempt, mode: "", phase: Phase::Cancel, until };
        self.run(request, SentBefore::NEVER, None).await?;
        if !self.is_settled(attempt) {
            return Ok(Cancelled::AskAgain);
        }
        self.queues.forget(attempt.id);
        Ok(Cancelled::Settled)
    }

    /// Whether nothing that was sent for this attempt can still be carried out.
    pub(crate) fn is_settled(&self, attempt: &Attempt) -> bool {
        let lock = || self.keys.of(&attempt.name, attempt.kind).lock;
        attempt.first_sent().is_none_or(|first| self.links.is_settled(first, lock))
    }

    /// Gives a grant another mode, of no more weight.
    pub(crate) async fn change_mode(&self, attempt: &Attempt, mode: &str, phase: Phase) -> Result<(), Error> {
        let keys = &self.keys.of(&attempt.name, attempt.kind);
        let until = self.links.until();
        let request = ReleaseRequest { script: &scripts::CHANGE_MODE, keys, attempt, mode, phase, until };
        let reason = match self.run(request, SentBefore::NEVER, None).await? {
            Released::Done => return Ok(()),
            Released::NotHeld(reason) => reason,
            _ => None,
        };
        let what = "the server has no such grant (any more)";
        Err(attempt.error(ErrorKind::NotHeld, phase, what).with_server(self.links.server()).with_loss(reason))
    }

    /// Releases a lock for which nobody waits, or says that it has to be done the long way.
    async fn short(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        until: BootInstant,
        caller: Option<&Caller<'_>>,
    ) -> Result<ShortRelease, Error> {
        if self.queues.is_busy(&keys.lock) {
            return Ok(ShortRelease::TakeLongWay(SentBefore::NEVER));
        }
        match (keys.form, caller) {
            (Form::Text, _) => self.short_mutex(keys, attempt, until, caller).await,
            // One request by itself would gain nothing: the long way begins with the short one.
            (Form::Holders, Some(caller)) if caller.has_company => {
                // Boxed: it would be in the future of every release of a mutex.
                Box::pin(self.short_holder(keys, attempt, until, caller)).await
            }
            (Form::Holders | Form::Redisson, _) => Ok(ShortRelease::TakeLongWay(SentBefore::NEVER)),
        }
    }

    async fn short_mutex(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        until: BootInstant,
        caller: Option<&Caller<'_>>,
    ) -> Result<ShortRelease, Error> {
        let mut digits = [0; GrantId::LENGTH];
        let nonce = attempt.id.encode(&mut digits);
        let short = ShortRequest { way: ShortWay::Release, call: Call::of([&*keys.lock]).with([nonce]), until };
        let owner = if self.links.may_compare() { self.owner.of(&attempt.owner).ok() } else { None };
        let held = attempt.token().zip(owner.as_deref());
        let held = held.map(|(token, owner)| MutexText { nonce, client: &self.identity.client, owner, token });
        let released = self.links.run_short_for(attempt, short, &scripts::RELEASE_SHORT, held.as_ref(), caller).await;
        let (reply, before) = match released {
            Ok(reply) => reply,
            Err(error) if is_foreign(&error) => return Ok(ShortRelease::TakeLongWay(SentBefore::NEVER)),
            Err(error) => return Err(error),
        };
        if self.links.short_reply(&reply, nonce, Phase::Release)?.0 == b'+' {
            return Ok(ShortRelease::Done);
        }
        self.queues.found_held(&keys.lock);
        Ok(ShortRelease::TakeLongWay(before))
    }

    /// Releases a grant of another kind, together with what others ask for at the same moment.
    async fn short_holder(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        until: BootInstant,
        caller: &Caller<'_>,
    ) -> Result<ShortRelease, Error> {
        let mut digits = [0; GrantId::LENGTH];
        let nonce = attempt.id.encode(&mut digits);
        let call = Call::of_two(&keys.lock, keys.beside(), ":q").with([nonce]);
        let request = BatchableRequest::new(ShortRequest { way: ShortWay::ReleaseHolder, call, until });
        let reply = match self.links.run_with_others(attempt, &request, caller).await {
            Some(Ok(reply)) => reply,
            Some(Err(failed)) => return Ok(ShortRelease::Failed(failed)),
            None => return Ok(ShortRelease::TakeLongWay(SentBefore::NEVER)),
        };
        if let (b'+', _) = self.links.short_reply(&reply, nonce, Phase::Release)? {
            return Ok(ShortRelease::Done);
        }
        self.queues.found_held(&keys.lock);
        Ok(ShortRelease::TakeLongWay(SentBefore::NEVER))
    }

    /// Runs a script that makes room for others.
    async fn run(
        &self,
        request: ReleaseRequest<'_>,
        before: SentBefore,
        failed: Option<Failed>,
    ) -> Result<Released, Error> {
        let ReleaseRequest { script, keys, attempt, mode, phase, until } = request;
        let nonce = attempt.id.to_string();
        let args = [
            nonce.as_bytes(),
            self.identity.client.as_bytes(),
            self.identity.channels.as_bytes(),
            keys.shared_arg(),
            mode.as_bytes(),
        ];
        let all = keys.all();
        // If this future is dropped, the reply is too, and with it the news of a next holder in this process.
        let lost_news = AskOnDrop { queues: &self.queues, lock: &keys.lock, armed: true };
        let request = Request::new(script, &all, &args);
        let reply = self.links.run_for_after(failed, attempt, request, phase, until).await;
        let (reply, again) = match reply {
            Ok(reply) => reply,
            Err(error) if before.0 && (error.is_definite() || is_foreign(&error)) => {
                let what = "the release failed, and it is unknown whether an earlier sending of it freed the grant";
                let unknown = attempt.error(ErrorKind::Indeterminate, phase, what).with_server(self.links.server());
                return Err(unknown.with_source(error));
            }
            Err(error) if is_foreign(&error) => return Ok(Released::NotHeld(None)),
            Err(error) => return Err(error),
        };
        lost_news.disarm();
        let mut fields = self.links.fields(reply.value, &nonce, phase)?;
        let done = fields.number()?;
        if done == 0 {
            let why = fields.text()?;
            // A change of its mode never ends a grant.
            if why.is_empty() && mode.is_empty() && phase == Phase::Release && (before.0 || again.0) {
                // Either an earlier sending of this release has done it, or the grant was lost before.
                let what =
                    "the grant is gone; whether this release freed it is unknown, as its first answer never came";
                return Err(attempt.error(ErrorKind::Indeterminate, phase, what).with_server(self.links.server()));
            }
            return Ok(Released::NotHeld((!why.is_empty()).then(|| push::forced(&why))));
        }
        if done == MORE {
            self.queues.go_on(Arc::new(keys.clone()));
        }
        let next = fields.grants()?;
        for granted in &next {
            self.queues.granted(*granted, Some(reply.sent_at));
        }
        if !next.is_empty() {
            // The new holders are tasks of this process: they go first.
            tokio::task::yield_now().await;
        }
        Ok(Released::Done)
    }
}

/// A request that makes room for others: a release, a cancellation, a change of what is held.
#[derive(Debug, Clone, Copy)]
struct ReleaseRequest<'a> {
    /// Replies `{nonce, 1, grants…}`, where the grants are those of this client's waiters that found room, or
    /// `{nonce, 0, why}`; the second is [`MORE`] if more waiters find room than one run lets in.
    script: &'static Script,
    keys: &'a Keys,
    attempt: &'a Attempt,
    /// The mode that the grant is to get, for a change.
    mode: &'a str,
    phase: Phase,
    until: BootInstant,
}

/// The outcome of the short way.
enum ShortRelease {
    Done,
    TakeLongWay(SentBefore),
    /// It failed like this.
    Failed(Failed),
}

/// Asks for a lock at once if an answer that may have named its next holder is lost.
struct AskOnDrop<'a> {
    queues: &'a WaitQueues,
    lock: &'a str,
    armed: bool,
}

impl AskOnDrop<'_> {
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for AskOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.queues.news_lost(self.lock);
        }
    }
}

/// Whether the key holds something that is no grant of ours. An error that says so is of a request that was sent once only:
/// otherwise [`Links::run_for`] tells the unknown outcome of the first sending in its place.
pub(crate) fn is_foreign(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    source.is_some_and(Cause::is_wrong_type)
}
