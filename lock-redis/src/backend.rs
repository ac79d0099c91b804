//! The backend: what every kind of lock shares, and the tasks of one client.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Backend, Cancelled, Doubts, Kind, Notices, Operator, Released, Renewal, Renewed};
use lock_core::{Error, GrantId, Guarantees, LockName, LossReason, Owner, Phase};
use redis::Value;
use tokio::sync::mpsc;

use crate::client::call::Call;
use crate::client::key_tracking::KeyTracking;
use crate::client::links::Links;
use crate::client::push::{self, Message, Push};
use crate::client::request::{Failed, Raw, Reply};
use crate::config::RedisConfig;
use crate::error::{self, Fate};
use crate::release::{ReleaseRequest, SentBefore, ShortRelease};
use crate::store::dialect::{Dialects, Form};
use crate::store::keys::{self, Keys};
use crate::store::reply::Fields;
use crate::store::scripts::Script;
use crate::wait::heartbeat;
use crate::wait::queue::{Pause, WaitQueues};

/// One client's connections to a server, and its waiters.
#[derive(Debug)]
pub struct RedisBackend {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) link: Arc<Links>,
    pub(crate) waiters: Arc<WaitQueues>,
    pub(crate) push: Arc<Push>,
    tracking: KeyTracking,
    notices: Notify,
    prefix: String,
    dialects: Dialects,
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
        let waiters = Arc::<WaitQueues>::default();
        let notices = Notify::default();
        let link = Unfinished { link: Arc::new(Links::connect(config, target).await?), armed: true };
        let told = inbox(waiters.clone(), notices.clone());
        link.link.warm_up().await;
        let push = Push::connect(link.link.to_listen(), format!("{channels}{client}"), told).await?;
        let link = link.finish();
        link.follow(&push);
        let prefix = config.prefix.clone();
        let changed = waiters.clone();
        let tracking = link.tracking(Arc::new(move |key: &str| changed.ask_after(key, Duration::ZERO)));
        let shared = Arc::new(Shared {
            link,
            waiters,
            push,
            tracking,
            notices,
            prefix,
            dialects: config.dialects.clone(),
            channels,
            client,
            op_timeout,
            card: RwLock::default(),
        });
        tokio::spawn(heartbeat::for_ever(shared.clone()));
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
    /// The keys of a lock that somebody asks for.
    ///
    /// # Errors
    /// If it is to be kept at a key that this client uses for something else.
    pub(crate) fn checked_keys(&self, name: &LockName, kind: Kind) -> Result<Keys, Error> {
        Keys::checked(&self.prefix, name, kind, &self.dialects)
    }

    pub(crate) fn keys(&self, name: &LockName, kind: Kind) -> Keys {
        Keys::of(&self.prefix, name, kind, &self.dialects)
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
        self.link.asks_for(attempt.ttl);
        loop {
            // The earliest connection that may have carried anything of this attempt.
            let note = |generation| {
                let before = attempt.note();
                if before == 0 || generation < before {
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
                && self.link.is_settled(attempt.note(), || keys[0].to_string());
            if !again {
                return Err(unknown.unwrap_or(error));
            }
            unknown.get_or_insert(error);
        }
    }

    /// Looks out for what a waiter at a shared key was told that it has to wait for.
    pub(crate) fn look_out(&self, keys: &Keys, pause: Pause) {
        let is_held = match pause {
            Pause::Foreign => true,
            Pause::Free(_) => false,
            Pause::None | Pause::Until(_) | Pause::Regular => return,
        };
        if let Some(server) = self.link.master(&keys.lock) {
            self.tracking.listen(&server, &keys.lock, is_held);
        }
    }

    /// How a renewal script is called for this lease.
    pub(crate) fn renewal(&self, renewal: &Renewal<'_>) -> Call {
        renewal_of(self.keys(&renewal.attempt.name, renewal.attempt.kind), renewal)
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

    /// Reads `{token, ...}`, where the token says which request is answered: a reply to another one costs the connection.
    pub(crate) fn fields(&self, raw: Raw, token: &str, phase: Phase) -> Result<Fields, Error> {
        let fields = Fields::answering(token, raw.value, phase, self.link.server());
        fields.ok_or_else(|| self.not_mine(raw.generation, phase))
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
        error::of_another(phase, self.link.server())
    }
}

/// What is done with a push.
fn inbox(waiters: Arc<WaitQueues>, notices: Notify) -> push::Inbox {
    Box::new(move |message| match message {
        Message::Granted(granted) => waiters.granted(granted, None),
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
        let now = SystemClock.now();
        let mut groups: HashMap<(u32, Form), Vec<usize>> = HashMap::new();
        for (i, renewal) in batch.iter().enumerate() {
            self.shared.link.asks_for(renewal.ttl);
            let form = Form::of(&renewal.attempt.name, renewal.attempt.kind, &self.shared.dialects);
            let urgency = self.patience(renewal).as_millis().checked_ilog2().unwrap_or_default();
            groups.entry((urgency, form)).or_default().push(i);
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|((urgency, _), _)| *urgency);
        let renewed = groups.into_iter().map(async |((_, form), group)| {
            let these: Vec<_> = group.iter().map(|i| &batch[*i]).collect();
            let patience = these.iter().map(|renewal| self.patience(renewal)).min().unwrap_or_default();
            (group, self.renew_each(form, these, now.plus(patience)).await)
        });
        let mut answers: Vec<_> = batch.iter().map(|_| None).collect();
        for (group, outcomes) in join_all(renewed).await {
            for (i, outcome) in group.into_iter().zip(outcomes) {
                answers[i] = Some(outcome);
            }
        }
        let missing = || Renewed::Unknown(Error::indeterminate(Phase::Renew, "there was no answer for one of many"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        let (shared, until) = (&self.shared, self.shared.until());
        let keys = &shared.keys(&attempt.name, attempt.kind);
        match shared.release_short(keys, attempt, until).await? {
            ShortRelease::Done => Ok(Released::Done),
            ShortRelease::TakeLongWay(before) => {
                let script = &keys.scripts().release;
                shared
                    .run_release(
                        ReleaseRequest { script, keys, attempt, mode: "", phase: Phase::Release, until },
                        before,
                    )
                    .await
            }
        }
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        if attempt.note() == 0 {
            // Nothing was ever sent.
            self.forget(attempt);
            return Ok(Cancelled::Settled);
        }
        self.cancel_by(attempt, self.shared.until()).await
    }

    fn place(&self, attempt: &Attempt) -> u64 {
        self.shared.link.place(|| self.shared.keys(&attempt.name, attempt.kind).lock)
    }

    fn forget(&self, attempt: &Attempt) {
        self.shared.waiters.forget(attempt.id);
    }

    fn is_settled(&self, attempt: &Attempt) -> bool {
        let first = attempt.note();
        first == 0 || self.shared.link.is_settled(first, || self.shared.keys(&attempt.name, attempt.kind).lock)
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }
}

impl RedisBackend {
    /// How long a renewal may wait for its answer: if none comes within a third of the lease, it is tried again meanwhile.
    fn patience(&self, renewal: &Renewal<'_>) -> Duration {
        self.shared.op_timeout.min(renewal.attempt.ttl / 3)
    }

    /// Undoes an attempt that was sent, by this deadline.
    pub(crate) async fn cancel_by(&self, attempt: &Attempt, until: BootInstant) -> Result<Cancelled, Error> {
        let keys = &self.shared.keys(&attempt.name, attempt.kind);
        let script = &keys.scripts().cancel;
        let request = ReleaseRequest { script, keys, attempt, mode: "", phase: Phase::Cancel, until };
        self.shared.run_release(request, SentBefore::NEVER).await?;
        if !self.is_settled(attempt) {
            return Ok(Cancelled::AskAgain);
        }
        self.forget(attempt);
        Ok(Cancelled::Settled)
    }

    async fn renew_each(&self, form: Form, batch: Vec<&Renewal<'_>>, until: BootInstant) -> Vec<Renewed> {
        if batch.is_empty() {
            return Vec::new();
        }
        let calls: Vec<_> = batch.iter().map(|renewal| self.shared.renewal(renewal)).collect();
        let answers = self.shared.link.run_each(&form.scripts().renew, &calls, Phase::Renew, until).await;
        batch.iter().zip(answers).map(|(renewal, answer)| self.renewed(renewal, answer)).collect()
    }

    pub(crate) fn renewed(&self, renewal: &Renewal<'_>, answer: Result<Raw, Failed>) -> Renewed {
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

/// How a renewal script is called for the lease of this lock.
pub(crate) fn renewal_of(keys: Keys, Renewal { attempt, ttl, .. }: &Renewal<'_>) -> Call {
    Call::of([&*keys.lock]).with([attempt.id]).with([milliseconds(*ttl).as_str(), &keys.forced()])
}

/// Whole milliseconds, as Redis wants them. What is rounded off a TTL is less than the granularity that every lease has
/// subtracted.
pub(crate) fn milliseconds(duration: Duration) -> String {
    duration.as_millis().to_string()
}
