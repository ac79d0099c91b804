//! The backend: what every kind of lock shares, and the tasks of one client.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::backend::{Attempt, Backend, Cancelled, Doubts, Grant, Notices, Operator, Released, Renewal, Renewed};
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, ErrorKind, FencingToken, GrantId, Guarantees, LockName, LossReason, Owner, Phase};
use redis::Value;
use tokio::sync::mpsc;

use crate::config::RedisConfig;
use crate::connection::link::{Call, Failed, Raw, Reply};
use crate::connection::links::Links;
use crate::connection::push::{self, Message, Push};
use crate::connection::witness::{Witnessed, Witnesses};
use crate::error::{self, Fate};
use crate::keys::{self, Keys};
use crate::queue::{Answer, Due, Waiters};
use crate::reply::Fields;
use crate::script::{self, Script};

/// One client's connections to a server, and its waiters.
#[derive(Debug)]
pub struct RedisBackend {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) link: Arc<Links>,
    pub(crate) waiters: Arc<Waiters>,
    push: Arc<Push>,
    notices: Notify,
    prefix: String,
    /// The prefix of all push channels, and this client's id under it.
    pub(crate) channels: String,
    pub(crate) client: String,
    pub(crate) op_timeout: Duration,
    card: RwLock<Option<(GrantId, Arc<str>)>>,
}

type Notify = Arc<Mutex<Option<mpsc::UnboundedSender<(GrantId, LossReason)>>>>;

impl RedisBackend {
    pub(crate) async fn connect(config: &RedisConfig) -> Result<Self, Error> {
        let target = config.check()?;
        let op_timeout = config.client.op_timeout;
        let client = GrantId::random()?.to_string()[..16].to_owned();
        let channels = keys::channels(&config.prefix);
        let waiters = Arc::<Waiters>::default();
        let notices = Notify::default();
        let link = Unfinished { link: Arc::new(Links::connect(config, target).await?), armed: true };
        let told = inbox(waiters.clone(), notices.clone());
        let push = Push::connect(link.link.to_listen(), format!("{channels}{client}"), told).await?;
        let link = link.finish();
        link.follow(&push);
        let prefix = config.prefix.clone();
        let shared = Arc::new(Shared {
            link,
            waiters,
            push,
            notices,
            prefix,
            channels,
            client,
            op_timeout,
            card: RwLock::default(),
        });
        tokio::spawn(poke_for_ever(shared.clone()));
        Ok(Self { shared })
    }
}

/// Closes the command connections of a client that does not come to be, by an error or because nobody waits for it.
struct Unfinished {
    link: Arc<Links>,
    armed: bool,
}

impl Unfinished {
    fn finish(mut self) -> Arc<Links> {
        self.armed = false;
        self.link.clone()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.armed {
            self.link.close();
        }
    }
}

impl Drop for RedisBackend {
    fn drop(&mut self) {
        self.shared.link.close();
        self.shared.push.close();
        self.shared.waiters.wake.notify_one();
    }
}

impl Shared {
    pub(crate) fn keys(&self, name: &LockName) -> Keys {
        Keys::of(&self.prefix, name)
    }

    /// Who holds a lock, as it is written beside the nonce. The last one is remembered: most often it is the client's own.
    pub(crate) fn card(&self, owner: &Owner) -> Result<Arc<str>, Error> {
        if let Some((id, card)) = &*self.card.read().unwrap_or_else(PoisonError::into_inner)
            && *id == owner.id()
        {
            return Ok(card.clone());
        }
        let card: Arc<str> = serde_json::to_string(owner)
            .map_err(|e| Error::invalid(Phase::Acquire, "the owner cannot be written").with_source(e))?
            .into();
        *self.card.write().unwrap_or_else(PoisonError::into_inner) = Some((owner.id(), card.clone()));
        Ok(card)
    }

    pub(crate) fn until(&self) -> BootInstant {
        SystemClock.now().plus(self.op_timeout)
    }

    /// Runs a script that is idempotent by the attempt's nonce, within one operation timeout that ends at `until`. If the
    /// connection breaks under it, it is sent once more on a clean one; the answer then says whether it was sent before.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[Cow<'_, str>],
        args: &[&[u8]],
        attempt: &Attempt,
        phase: Phase,
        until: BootInstant,
    ) -> Result<(Reply, SentBefore), Error> {
        let mut unknown = None;
        loop {
            // The first connection that may have carried anything of this attempt.
            let note = |generation| {
                if attempt.note() == 0 {
                    attempt.set_note(generation);
                }
            };
            let Failed { fate, error, .. } = match self.link.run(script, keys, args, phase, until, note).await {
                Ok(reply) => return Ok((reply, SentBefore(unknown.is_some()))),
                Err(failed) => failed,
            };
            if fate == Fate::Refused {
                return Err(unknown.unwrap_or(error));
            }
            let again = SystemClock.now() < until
                && self.link.ready(&keys[0], until).await.is_ok()
                && self.link.is_settled(attempt.note(), &keys[0]);
            if !again {
                return Err(unknown.unwrap_or(error));
            }
            unknown.get_or_insert(error);
        }
    }

    /// How [`RENEW`](script::RENEW) is called for this lease.
    fn renewal(&self, Renewal { attempt, ttl, .. }: &Renewal<'_>) -> Call {
        Call {
            keys: self.keys(&attempt.name).to_renew().map(Cow::into_owned),
            args: [attempt.id.to_string(), milliseconds(*ttl)],
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
        let outcome = self.link.run(script, &keys.all(), args, phase, self.until(), |_| {}).await;
        outcome.map_err(|failed| failed.error)
    }

    /// Reads `{nonce, 1 or 0, ...}`; a reply to somebody else's request costs the connection.
    pub(crate) fn fields(&self, raw: Raw, nonce: &str, phase: Phase) -> Result<Fields, Error> {
        let mut fields = Fields::of(raw.value, phase, self.link.server())?;
        if fields.text()? != nonce {
            return Err(self.not_mine(raw.generation, phase));
        }
        Ok(fields)
    }

    /// Reads `<nonce><sign><rest>`, the reply of the short ways.
    pub(crate) fn short(&self, raw: Raw, nonce: &str, phase: Phase) -> Result<(u8, String), Error> {
        if let Value::BulkString(bytes) = raw.value
            && let Some((sign, rest)) = bytes.strip_prefix(nonce.as_bytes()).and_then(<[u8]>::split_first)
        {
            return Ok((*sign, String::from_utf8_lossy(rest).into_owned()));
        }
        Err(self.not_mine(raw.generation, phase))
    }

    /// A reply to somebody else's request: the connection cannot be trusted any more.
    fn not_mine(&self, generation: u64, phase: Phase) -> Error {
        self.link.distrust(generation);
        let what = "the reply belongs to another request; the connection was given up";
        Error::indeterminate(phase, what).with_backend(crate::NAME).with_server(self.link.server())
    }

    /// Gives a lock back for which nobody waits, or says that it has to be done the long way.
    async fn drop_lock(&self, attempt: &Attempt, until: BootInstant) -> Result<Dropped, Error> {
        let keys = self.keys(&attempt.name);
        if self.waiters.is_busy(&keys.lock) {
            return Ok(Dropped::NotYet(SentBefore(false)));
        }
        let nonce = attempt.id.to_string();
        let args = [nonce.as_bytes()];
        let reply = self.run(&script::DROP, &keys.to_drop(), &args, attempt, Phase::Release, until).await;
        let (reply, before) = match reply {
            Ok(reply) => reply,
            Err(error) if is_foreign(&error) => return Ok(Dropped::NotYet(SentBefore(false))),
            Err(error) => return Err(error),
        };
        if self.short(reply.value, &nonce, Phase::Release)?.0 == b'+' {
            return Ok(Dropped::Done);
        }
        self.waiters.found_held(&keys.lock);
        Ok(Dropped::NotYet(before))
    }

    /// `{nonce, 1}`, perhaps with the next holder of this client; or `{nonce, 0, why}`.
    async fn give_back(
        &self,
        script: &Script,
        attempt: &Attempt,
        phase: Phase,
        until: BootInstant,
        before: SentBefore,
    ) -> Result<Released, Error> {
        let keys = self.keys(&attempt.name);
        let nonce = attempt.id.to_string();
        let shared: &[u8] = if keys.shared { b"1" } else { b"" };
        let args = [nonce.as_bytes(), self.client.as_bytes(), self.channels.as_bytes(), shared];
        // If this future is dropped, the reply is too, and with it the news of a next holder in this process.
        let lost_news = AskOnDrop { waiters: &self.waiters, lock: &keys.lock, armed: true };
        let reply = self.run(script, &keys.all(), &args, attempt, phase, until).await;
        let (reply, again) = match reply {
            Ok(reply) => reply,
            // Whatever the key holds, it is not this grant.
            Err(error) if is_foreign(&error) => return Ok(Released::NotHeld(None)),
            Err(error) => return Err(error),
        };
        lost_news.disarm();
        let mut fields = self.fields(reply.value, &nonce, phase)?;
        if fields.number()? == 0 {
            let why = fields.text()?;
            if why.is_empty() && phase == Phase::Release && (before.0 || again.0) {
                // Either an earlier sending of this release has done it, or the grant was lost before.
                let what =
                    "the grant is gone; whether this release freed it is unknown, as its first answer never came";
                return Err(attempt.error(ErrorKind::Indeterminate, phase, what).with_server(self.link.server()));
            }
            return Ok(Released::NotHeld((!why.is_empty()).then(|| push::forced(&why))));
        }
        if !fields.is_empty() {
            let next = fields.grant_id()?;
            let token = fields.token()?;
            let claim = fields.milliseconds()?;
            self.waiters.granted(next, token, claim, Some(reply.sent_at));
            // The new holder is a task of this process: it goes first.
            tokio::task::yield_now().await;
        }
        Ok(Released::Done)
    }

    /// Gives back what a waiter that gave up was granted all the same. Best effort: the claim time ends it otherwise.
    async fn give_up(&self, nonce: GrantId, keys: &Keys) {
        let nonce = nonce.to_string();
        let shared: &[u8] = if keys.shared { b"1" } else { b"" };
        // Asked for in nobody's name, so that a next holder of this client is told by push too.
        let args = [nonce.as_bytes(), b"", self.channels.as_bytes(), shared];
        if let Err(error) = self.run_once(&script::CANCEL, keys, &args, Phase::Cancel).await {
            tracing::debug!(%error, "an unwanted grant could not be given back");
        }
    }

    async fn poke(&self, due: &Due) -> Result<Answer, Error> {
        let nonces: Vec<_> = due.nonces.iter().map(GrantId::to_string).collect();
        let shared: &[u8] = if due.keys.shared { b"1" } else { b"" };
        let mut args = vec![self.client.as_bytes(), self.channels.as_bytes(), shared];
        args.extend(nonces.iter().map(String::as_bytes));
        let Reply { sent_at, value } = self.run_once(&script::POKE, &due.keys, &args, Phase::Wait).await?;
        let mut fields = self.fields(value, &self.client, Phase::Wait)?;
        let known = fields.number()? == 1;
        let ends_in = u64::try_from(fields.number()?).ok().map(Duration::from_millis);
        let holder = fields.text()?;
        let token = fields.text()?;
        let holder = match (holder.parse(), token.parse().ok().and_then(FencingToken::new)) {
            (Ok(holder), Some(token)) => Some((holder, token)),
            _ => None,
        };
        let queued = fields.text()?.bytes().map(|digit| digit == b'1').collect();
        Ok(Answer { sent_at, known, ends_in, holder, queued })
    }
}

/// Whether the request that was answered had been sent once before, without an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentBefore(bool);

/// What the short way back has done.
enum Dropped {
    Done,
    NotYet(SentBefore),
}

/// Asks for a lock at once if an answer that may have named its next holder is lost.
struct AskOnDrop<'a> {
    waiters: &'a Waiters,
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
            self.waiters.ask_after(self.lock, Duration::ZERO);
        }
    }
}

fn is_foreign(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    source.is_some_and(error::is_wrong_type)
}

/// What is done with a push.
fn inbox(waiters: Arc<Waiters>, notices: Notify) -> push::Inbox {
    Box::new(move |message| match message {
        Message::Granted { nonce, token, claim } => waiters.granted(nonce, token, claim, None),
        Message::AskAfter { lock, pause } => waiters.ask_after(&lock, pause),
        Message::Reconnected => waiters.ask_all(),
        Message::Forced { nonce, reason } => {
            if let Some(notices) = &*notices.lock().unwrap_or_else(PoisonError::into_inner) {
                // A client without a keeper has no guards to tell.
                let _ = notices.send((nonce, reason));
            }
        }
    })
}

/// The one task that asks for all locks on which this client waits.
async fn poke_for_ever(shared: Arc<Shared>) {
    let mut pokes = FuturesUnordered::new();
    let mut returns = FuturesUnordered::new();
    let mut changes = shared.link.changes();
    let mut echo_due: Option<BootInstant> = None;
    while !shared.link.is_closed() {
        let (due, next) = shared.waiters.due();
        if !due.is_empty() && echo_due.is_some_and(|asked| shared.push.heard_at() < asked) {
            tracing::info!(server = shared.link.server(), "no pushes arrive; subscribing anew");
            shared.push.distrust();
            echo_due = None;
        }
        for (nonce, keys) in shared.waiters.unwanted() {
            let shared = &shared;
            returns.push(async move { shared.give_up(nonce, &keys).await });
        }
        for due in due {
            let shared = &shared;
            pokes.push(async move {
                let answer = shared.poke(&due).await;
                (due, answer)
            });
        }
        tokio::select! {
            Some((due, answer)) = pokes.next() => {
                match &answer {
                    Ok(answer) => echo_due = Some(answer.sent_at),
                    Err(error) => tracing::debug!(%error, "a waiter could not ask"),
                }
                shared.waiters.answered(&due, answer.as_ref().ok());
            }
            Some(()) = returns.next() => {}
            Ok(()) = changes.changed() => shared.waiters.ask_all(),
            () = shared.waiters.wake.notified() => {}
            () = SystemClock.sleep_until(next) => {}
        }
    }
}

#[async_trait]
impl Backend for RedisBackend {
    fn name(&self) -> &'static str {
        crate::NAME
    }

    fn guarantees(&self) -> Guarantees {
        self.shared.link.topology().guarantees()
    }

    fn notices(&self) -> Option<Notices> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.shared.notices.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        Some(receiver)
    }

    fn doubts(&self) -> Option<Doubts> {
        Some(self.shared.link.changes())
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let shared = &self.shared;
        let calls: Vec<_> = batch.iter().map(|renewal| shared.renewal(renewal)).collect();
        // A renewal that is not answered within a third of the shortest lease is to be tried again meanwhile.
        let shortest = batch.iter().map(|renewal| renewal.attempt.ttl).min().unwrap_or(shared.op_timeout);
        let until = SystemClock.now().plus(shared.op_timeout.min(shortest / 3));
        let answers = shared.link.run_each(&script::RENEW, &calls, Phase::Renew, until).await;
        batch.iter().zip(answers).map(|(renewal, answer)| self.renewed(renewal, answer)).collect()
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        let until = self.shared.until();
        match self.shared.drop_lock(attempt, until).await? {
            Dropped::Done => Ok(Released::Done),
            Dropped::NotYet(before) => {
                self.shared.give_back(&script::RELEASE, attempt, Phase::Release, until, before).await
            }
        }
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        if attempt.note() == 0 {
            // Nothing was ever sent.
            return Ok(Cancelled::Settled);
        }
        let (until, before) = (self.shared.until(), SentBefore(false));
        self.shared.give_back(&script::CANCEL, attempt, Phase::Cancel, until, before).await?;
        let key = self.shared.keys(&attempt.name).lock;
        let settled = self.shared.link.is_settled(attempt.note(), &key);
        Ok(if settled { Cancelled::Settled } else { Cancelled::AskAgain })
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }
}

impl RedisBackend {
    /// Lets a grant count only if as many replicas as are wanted have it; undoes it otherwise.
    pub(crate) async fn confirmed(&self, attempt: &Attempt, grant: Option<Grant>) -> Result<Option<Grant>, Error> {
        let (Some(granted), Some(witnesses)) = (grant, self.shared.link.witnesses()) else { return Ok(grant) };
        let error = match self.witnessed(attempt, granted, witnesses).await {
            Ok(grant) => return Ok(Some(grant)),
            Err(error) => error,
        };
        // An unknown outcome of the undoing is one of the acquisition: the core then undoes it in the background.
        self.cancel(attempt).await.map_err(|undoing| {
            let what = format!("{error}; undoing the grant: {undoing}");
            attempt.error(ErrorKind::Indeterminate, Phase::Acquire, what).with_server(self.shared.link.server())
        })?;
        Err(error)
    }

    async fn witnessed(&self, attempt: &Attempt, granted: Grant, witnesses: &Witnesses) -> Result<Grant, Error> {
        let shared = &self.shared;
        let refused = |what: String| {
            attempt.error(ErrorKind::Unavailable, Phase::Acquire, what).with_server(shared.link.server())
        };
        let renewal = Renewal::new(attempt, attempt.ttl);
        let call = shared.renewal(&renewal);
        let server = shared.link.master(&call.keys[0]);
        let server = server.ok_or_else(|| refused("there is no master whose replicas could be asked".to_owned()))?;
        let sent_at = SystemClock.now();
        let asked = witnesses.ask(&server, &script::RENEW, call).await;
        let Witnessed { value, replicas } =
            asked.map_err(|e| refused("the replicas could not be asked".to_owned()).with_source(e))?;
        let needed = witnesses.needed();
        if replicas < needed.count {
            let what = format!(
                "{replicas} instead of {} replicas acknowledged the grant within {:?}; it was undone",
                needed.count, needed.timeout
            );
            return Err(refused(what));
        }
        // Another server than the one that granted it may have been asked: there it is not.
        match self.renewed(&renewal, Ok(Raw { value, generation: 0 })) {
            Renewed::For(valid_for) => Ok(Grant::new(granted.token, sent_at, valid_for)),
            _ => Err(refused("the grant was gone before replicas acknowledged it".to_owned())),
        }
    }

    fn renewed(&self, renewal: &Renewal<'_>, answer: Result<Raw, Failed>) -> Renewed {
        let value = match answer {
            Ok(value) => value,
            Err(Failed { wrong_type: true, .. }) => return Renewed::Lost(LossReason::Taken),
            Err(Failed { error, .. }) => return Renewed::Unknown(error),
        };
        let read = || {
            let mut fields = self.shared.fields(value, &renewal.attempt.id.to_string(), Phase::Renew)?;
            if fields.number()? == 1 {
                return Ok(Renewed::For(renewal.ttl));
            }
            let why = fields.text()?;
            Ok(Renewed::Lost(if why.is_empty() { LossReason::Taken } else { push::forced(&why) }))
        };
        read().unwrap_or_else(Renewed::Unknown)
    }
}

/// Whole milliseconds, as Redis wants them. What is rounded off a TTL is less than the granularity that every lease has
/// subtracted.
pub(crate) fn milliseconds(duration: Duration) -> String {
    duration.as_millis().to_string()
}
