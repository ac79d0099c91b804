//! The command connections of one client, however its servers are arranged.

mod connect;
mod places;
mod repetition;

use std::borrow::{Borrow, Cow};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Doubts};
use lock_core::{Error, FencingToken, Phase};

pub(crate) use self::connect::UnfinishedLinks;
use super::dial::{Dial, Opener};
use super::link::batches::BatchableRequest;
use super::link::request::{Failed, Raw, Reply};
use super::link::{Caller, Link, ShortReply};
use super::locate::cluster::Router;
use super::locate::sentinel::Sentinels;
use crate::error;
use crate::store::call::{Call, MutexText, Request, ShortRequest};
use crate::store::keys::Keys;
use crate::store::reply::Fields;
use crate::store::scripts::Script;

/// The command connections of one client.
#[derive(Debug)]
pub(crate) struct Links {
    masters: Masters,
    opener: Arc<Opener>,
}

/// Whether the request that was answered had been sent once before, without an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentBefore(pub(crate) bool);

impl SentBefore {
    pub(crate) const NEVER: Self = Self(false);
}

#[derive(Debug)]
enum Masters {
    /// To the one master that there is.
    One { link: Arc<Link>, dial: Arc<Dial>, sentinels: Option<Arc<Sentinels>> },
    /// To each master of a cluster.
    Cluster(Arc<Router>),
}

impl Links {
    /// The time that one operation may take.
    pub(crate) fn op_timeout(&self) -> Duration {
        self.opener.op_timeout
    }

    /// The end of an operation that begins now.
    pub(crate) fn until(&self) -> BootInstant {
        SystemClock.now().plus(self.op_timeout())
    }

    /// The server's name in errors.
    pub(crate) fn server(&self) -> &str {
        match &self.masters {
            Masters::One { link, .. } => link.server(),
            Masters::Cluster(router) => router.server(),
        }
    }

    /// Counts a caller whose request may go together with those of others: there are such requests where one server has all keys.
    pub(crate) fn caller(&self) -> Option<Caller<'_>> {
        self.only().map(|link| link.caller())
    }

    /// Runs a request in a short way of the mutex, as [`run_for`](Links::run_for) does, together with others of the same moment. Alone, it
    /// may compare and delete the text `held` without a script.
    pub(crate) async fn run_short_for(
        &self,
        attempt: &Attempt,
        short: ShortRequest,
        alone: &Script,
        held: Option<&MutexText<'_>>,
        caller: Option<&Caller<'_>>,
    ) -> Result<(ShortReply, SentBefore), Error> {
        let Some(caller) = caller.filter(|caller| caller.has_company) else {
            return self.run_short_alone(attempt, &short, (alone, held), None).await;
        };
        let request = BatchableRequest::new(short);
        match self.run_with_others(attempt, &request, caller).await {
            Some(Ok(reply)) => Ok((reply, SentBefore::NEVER)),
            Some(Err(failed)) => self.run_short_alone(attempt, &request.short, (alone, held), Some(failed)).await,
            None => self.run_short_alone(attempt, &request.short, (alone, held), None).await,
        }
    }

    /// Sends a request together with what others ask for at the same moment; `None` if it is to go on by itself: then nothing of it
    /// was carried out.
    pub(crate) async fn run_with_others(
        &self,
        attempt: &Attempt,
        request: &Arc<BatchableRequest>,
        caller: &Caller<'_>,
    ) -> Option<Result<ShortReply, Failed>> {
        self.note_lease(attempt.ttl);
        caller.link.run_in_batch(request, |generation| attempt.mark_sent(generation)).await
    }

    /// Runs a short way by itself: again, if it failed with others.
    ///
    /// Boxed, since most requests of a busy client go together: every one of them is moved into a box, the smaller the better.
    fn run_short_alone<'a>(
        &'a self,
        attempt: &'a Attempt,
        short: &'a ShortRequest,
        (script, held): (&'a Script, Option<&'a MutexText<'a>>),
        failed: Option<Failed>,
    ) -> BoxFuture<'a, Result<(ShortReply, SentBefore), Error>> {
        Box::pin(async move {
            let (phase, until) = (short.way.phase(), short.until);
            let keys: Vec<_> = short.call.keys().map(Cow::Borrowed).collect();
            let args: Vec<_> = short.call.args().map(str::as_bytes).collect();
            let request = Request { held, ..Request::new(script, &keys, &args) };
            let (Reply { sent_at, value }, before) = self.run_for_after(failed, attempt, request, phase, until).await?;
            Ok((ShortReply::whole(value.value, sent_at, value.generation), before))
        })
    }

    /// [`run_for`](Links::run_for), again if it failed with others.
    pub(crate) async fn run_for_after(
        &self,
        failed: Option<Failed>,
        attempt: &Attempt,
        request: Request<'_>,
        phase: Phase,
        until: BootInstant,
    ) -> Result<(Reply, SentBefore), Error> {
        match failed {
            Some(failed) => Box::pin(self.run_again(slice::from_ref(attempt), request, phase, until, failed)).await,
            None => self.run_for(attempt, request, phase, until).await,
        }
    }

    /// Runs a script that is idempotent by the attempt's nonce, within one operation timeout that ends at `until`. If the
    /// connection breaks under it, it is sent once more on a clean one; the answer then says whether it was sent before.
    pub(crate) fn run_for(
        &self,
        attempt: &Attempt,
        request: Request<'_>,
        phase: Phase,
        until: BootInstant,
    ) -> impl Future<Output = Result<(Reply, SentBefore), Error>> {
        self.run_for_all(slice::from_ref(attempt), request, phase, until)
    }

    /// [`run_for`](Links::run_for) for several attempts, whose keys are in one place.
    pub(crate) async fn run_for_all(
        &self,
        attempts: &[impl Borrow<Attempt>],
        request: Request<'_>,
        phase: Phase,
        until: BootInstant,
    ) -> Result<(Reply, SentBefore), Error> {
        attempts.iter().for_each(|attempt| self.note_lease(attempt.borrow().ttl));
        let mark = |generation| mark_all(attempts, generation);
        match self.run(request, phase, until, mark).await {
            Ok(reply) => Ok((reply, SentBefore::NEVER)),
            Err(failed) => Box::pin(self.run_again(attempts, request, phase, until, failed)).await,
        }
    }

    /// Runs a script, waiting for a connection at most until `until`. What may have been carried out is never sent again.
    ///
    /// `sent` is told each connection before anything is sent on it, so that a caller that is dropped in the middle
    /// leaves a trace.
    pub(crate) async fn run(
        &self,
        request: Request<'_>,
        phase: Phase,
        until: BootInstant,
        sent: impl Fn(u64),
    ) -> Result<Reply, Failed> {
        match &self.masters {
            Masters::One { link, .. } => link.run(request, phase, until, sent).await,
            Masters::Cluster(router) => router.run(request, phase, until, sent).await,
        }
    }

    /// Runs one script for many keys, a pipeline for each server; one outcome for each.
    pub(crate) async fn run_each(
        &self,
        script: &Script,
        calls: &[Call],
        phase: Phase,
        until: BootInstant,
    ) -> Vec<Result<Raw, Failed>> {
        match &self.masters {
            Masters::One { link, .. } => link.run_each(script, calls, phase, until).await,
            Masters::Cluster(router) => router.run_each(script, calls, phase, until).await,
        }
    }

    /// Runs a script that belongs to no attempt.
    pub(crate) async fn run_once(
        &self,
        script: &Script,
        keys: &Keys,
        args: &[&[u8]],
        phase: Phase,
    ) -> Result<Reply, Error> {
        let all = keys.all();
        let outcome = self.run(Request::new(script, &all, args), phase, self.until(), |_| {}).await;
        outcome.map_err(|failed| failed.error)
    }

    /// Reads `{token, ...}`, where the token says which request is answered: a reply to another one costs the connection.
    pub(crate) fn fields(&self, raw: Raw, token: &str, phase: Phase) -> Result<Fields<'_>, Error> {
        let fields = Fields::answering(token, raw.value, phase, self.server());
        fields.ok_or_else(|| self.not_mine(raw.generation, phase))
    }

    /// Reads the sign and the token of a reply in a short way, where not each sign has a token.
    pub(crate) fn short_reply(
        &self,
        reply: &ShortReply,
        nonce: &str,
        phase: Phase,
    ) -> Result<(u8, Option<FencingToken>), Error> {
        reply.read(nonce).ok_or_else(|| self.not_mine(reply.generation, phase))
    }

    /// Gives up a connection that replied to somebody else's request: it cannot be trusted any more.
    fn not_mine(&self, generation: u64, phase: Phase) -> Error {
        self.give_up(generation);
        error::of_another(phase, self.server())
    }

    /// Gives up the connection of this number: its replies are taken for those to other requests.
    pub(crate) fn give_up(&self, generation: u64) {
        match &self.masters {
            Masters::One { link, .. } => link.give_up_present(generation),
            Masters::Cluster(router) => router.give_up(generation),
        }
    }

    /// Takes note of a lease that is about to be asked for.
    pub(crate) fn note_lease(&self, ttl: Duration) {
        match &self.masters {
            Masters::One { link, .. } => link.note_lease(ttl),
            Masters::Cluster(router) => router.predecessors().note_lease(ttl),
        }
    }

    /// Whether nothing sent over connection `first` or a later one can still take effect, except over the present connection for this key.
    pub(crate) fn is_settled(&self, first: u64, key: impl FnOnce() -> String) -> bool {
        match &self.masters {
            Masters::One { link, .. } => link.is_settled(first),
            Masters::Cluster(router) => router.is_settled(first, &key()),
        }
    }

    /// Waits for the connection for this key.
    ///
    /// # Errors
    /// If there is none until `until`.
    pub(crate) async fn ready(&self, key: &str, until: BootInstant) -> Result<(), Error> {
        match &self.masters {
            Masters::One { link, .. } => link.ready(until).await,
            Masters::Cluster(router) => router.ready(key, until).await,
        }
    }

    /// The occasions on which something may have been lost: a connection was replaced, or another server took over.
    pub(crate) fn doubts(&self) -> Doubts {
        match &self.masters {
            Masters::One { link, .. } => link.doubts(),
            Masters::Cluster(router) => router.predecessors().doubts(),
        }
    }

    /// Whether a server may have a compare-and-delete of its own.
    pub(crate) fn may_compare(&self) -> bool {
        self.only().is_none_or(|link| link.compares())
    }

    /// The link, if one server has all keys.
    fn only(&self) -> Option<&Arc<Link>> {
        match &self.masters {
            Masters::One { link, .. } => Some(link),
            Masters::Cluster(_) => None,
        }
    }
}

/// Notes that these attempts are sent over the connection of this number.
fn mark_all(attempts: &[impl Borrow<Attempt>], generation: u64) {
    attempts.iter().for_each(|attempt| attempt.borrow().mark_sent(generation));
}
