//! The command connections of one client, however its servers are arranged.

use std::borrow::{Borrow, Cow};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Doubts, supervised, wait};
use lock_core::{Error, FencingToken, Phase};

use super::dial::{Dial, Opener};
use super::key_tracking::{KeyTracking, OnChange};
use super::link::batches::BatchableRequest;
use super::link::call::{Call, ShortReply, ShortRequest};
use super::link::request::{Failed, Raw, Reply, Request};
use super::link::{Caller, Link};
use super::locate::cluster::Router;
use super::locate::sentinel::{self, Sentinels};
use super::push::Push;
use super::replica_acks::ReplicaAcks;
use crate::address::Address;
use crate::config::{RedisConfig, Replicas};
use crate::error::{self, RequestFate};
use crate::guarantees::Topology;
use crate::store::keys::Keys;
use crate::store::record::MutexText;
use crate::store::reply::Fields;
use crate::store::scripts::Script;
use crate::store::slot::slot;
use crate::url::{Servers, Target};

/// The pause before a request is sent again that was sent again already: the first one, and the longest. Jitter adds as much at
/// most.
const PAUSE: Duration = Duration::from_millis(30);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

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
    /// Connects, and keeps connected until [`close`](Links::close).
    ///
    /// # Errors
    /// If no first connection can be made.
    pub(crate) async fn connect(config: &RedisConfig, target: Target) -> Result<Self, Error> {
        let (tls, op_timeout) = (target.tls.then(|| config.tls()), config.client.op_timeout);
        let opener = Opener::new(&target.login, target.database, tls.as_ref(), op_timeout)?.over(config.network());
        let opener = Arc::new(opener.for_keys_of(format!("{}:mutex:", config.prefix).into()));
        let masters = match target.servers {
            Servers::One(address) => Masters::one(Dial::to(opener.clone(), address), None).await?,
            Servers::Sentinel { sentinels, master } => {
                let asks = Opener::new(&config.sentinel_login(), 0, tls.as_ref(), op_timeout)?.over(config.network());
                let sentinels = Arc::new(Sentinels::new(asks, sentinels, master));
                Masters::one(Dial::at(opener.clone(), sentinels.clone(), sentinels.shown()), Some(sentinels)).await?
            }
            Servers::Cluster(seeds) => Masters::Cluster(Router::connect(opener.clone(), seeds).await?),
        };
        Ok(Self { masters, opener })
    }

    /// Makes the connections that are not made yet, as far as they can be made soon.
    pub(crate) async fn warm_up(&self) {
        if let Masters::Cluster(router) = &self.masters {
            router.warm_up().await;
        }
    }

    pub(crate) fn topology(&self) -> Topology {
        match &self.masters {
            Masters::One { sentinels: None, .. } => Topology::Single,
            Masters::One { sentinels: Some(_), .. } => Topology::Sentinel,
            Masters::Cluster(_) => Topology::Cluster,
        }
    }

    /// Requests for acknowledgements by so many replicas.
    pub(crate) fn replica_acks(&self, needed: Replicas) -> ReplicaAcks {
        ReplicaAcks::new(self.opener.clone(), needed)
    }

    /// The time that one operation may take.
    pub(crate) fn op_timeout(&self) -> Duration {
        self.opener.op_timeout
    }

    /// The end of an operation that begins now.
    pub(crate) fn until(&self) -> BootInstant {
        SystemClock.now().plus(self.op_timeout())
    }

    /// The address of the master of this key, if there is one.
    pub(crate) fn master(&self, key: &str) -> Option<Address> {
        match &self.masters {
            Masters::One { link, .. } => link.present().map(|live| live.server.clone()),
            Masters::Cluster(router) => router.master(key),
        }
    }

    /// A number for the master of this key, hashed from its address; 0 with one server, or while no master is known.
    pub(crate) fn place(&self, key: impl FnOnce() -> String) -> u64 {
        match &self.masters {
            Masters::One { .. } => 0,
            Masters::Cluster(router) => router.master(&key()).map_or(0, |master| {
                let mut hasher = DefaultHasher::new();
                master.hash(&mut hasher);
                hasher.finish()
            }),
        }
    }

    /// Whether one run of a script can have all of these keys.
    pub(crate) fn are_together<'a>(&self, keys: impl IntoIterator<Item = &'a str>) -> bool {
        match &self.masters {
            Masters::One { .. } => true,
            Masters::Cluster(_) => {
                let mut slots = keys.into_iter().map(|key| slot(key.as_bytes()));
                slots.next().is_none_or(|first| slots.all(|other| other == first))
            }
        }
    }

    /// Tracking of keys at the masters.
    pub(crate) fn tracking(&self, heard: OnChange) -> KeyTracking {
        KeyTracking::new(self.opener.clone(), heard)
    }

    /// The way to a server that publishes what the masters do.
    pub(crate) fn to_listen(&self) -> Arc<Dial> {
        match &self.masters {
            Masters::One { dial, .. } => dial.clone(),
            Masters::Cluster(router) => {
                Arc::new(Dial::at(self.opener.clone(), router.nodes().clone(), router.server().to_owned()))
            }
        }
    }

    /// Keeps both kinds of connections at the master, where it can move.
    pub(crate) fn follow(&self, push: &Arc<Push>) {
        if let Masters::One { link, sentinels: Some(sentinels), .. } = &self.masters {
            let (sentinels, link, push) = (sentinels.clone(), link.clone(), push.clone());
            let follow = move || sentinel::follow(sentinels.clone(), link.clone(), push.clone());
            tokio::spawn(supervised("sentinels", follow));
        }
    }

    /// The server's name in errors.
    pub(crate) fn server(&self) -> &str {
        match &self.masters {
            Masters::One { link, .. } => link.server(),
            Masters::Cluster(router) => router.server(),
        }
    }

    /// The occasions on which something may have been lost: a connection was replaced, or another server took over.
    pub(crate) fn doubts(&self) -> Doubts {
        match &self.masters {
            Masters::One { link, .. } => link.doubts(),
            Masters::Cluster(router) => router.predecessors().doubts(),
        }
    }

    /// Whether nothing sent over connection `first` or a later one can still take effect, except over the present connection for this key.
    pub(crate) fn is_settled(&self, first: u64, key: impl FnOnce() -> String) -> bool {
        match &self.masters {
            Masters::One { link, .. } => link.is_settled(first),
            Masters::Cluster(router) => router.is_settled(first, &key()),
        }
    }

    /// Takes note of a lease that is about to be asked for.
    pub(crate) fn note_lease(&self, ttl: Duration) {
        match &self.masters {
            Masters::One { link, .. } => link.note_lease(ttl),
            Masters::Cluster(router) => router.predecessors().note_lease(ttl),
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

    pub(crate) fn is_closed(&self) -> bool {
        match &self.masters {
            Masters::One { link, .. } => link.is_closed(),
            Masters::Cluster(router) => router.is_closed(),
        }
    }

    /// Ends every connection.
    pub(crate) fn close(&self) {
        match &self.masters {
            Masters::One { link, .. } => link.close(),
            Masters::Cluster(router) => router.close(),
        }
    }

    /// Gives up the connection of this number: its replies are taken for those to other requests.
    pub(crate) fn give_up(&self, generation: u64) {
        match &self.masters {
            Masters::One { link, .. } => link.give_up_present(generation),
            Masters::Cluster(router) => router.give_up(generation),
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

    /// Whether a server may have a compare-and-delete of its own.
    pub(crate) fn may_compare(&self) -> bool {
        self.only().is_none_or(|link| link.compares())
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

    /// Runs a script again that failed, as long as nothing of its earlier runs can still be carried out.
    async fn run_again(
        &self,
        attempts: &[impl Borrow<Attempt>],
        request: Request<'_>,
        phase: Phase,
        until: BootInstant,
        mut failed: Failed,
    ) -> Result<(Reply, SentBefore), Error> {
        let (mut unknown, mut pauses) = (None, wait::pauses(PAUSE, LONGEST_PAUSE));
        loop {
            let Failed { fate, error, .. } = failed;
            // At once for the first time. Whatever makes its outcome unknown may go on.
            if unknown.is_some() && fate != RequestFate::Refused {
                let pause = pauses.next().unwrap_or(LONGEST_PAUSE);
                SystemClock.sleep_until(SystemClock.now().plus(pause).min(until)).await;
            }
            let again = fate != RequestFate::Refused
                && SystemClock.now() < until
                && self.ready(&request.keys[0], until).await.is_ok()
                && self.is_settled(first_sent(attempts).unwrap_or(0), || request.keys[0].to_string());
            if !again {
                return Err(unknown.unwrap_or(error));
            }
            unknown.get_or_insert(error);
            // The smallest number is of the earliest connection that may have carried anything of an attempt.
            let mark = |generation| mark_all(attempts, generation);
            failed = match self.run(request, phase, until, mark).await {
                Ok(reply) => return Ok((reply, SentBefore(true))),
                Err(failed) => failed,
            };
        }
    }

    /// The link, if one server has all keys.
    fn only(&self) -> Option<&Arc<Link>> {
        match &self.masters {
            Masters::One { link, .. } => Some(link),
            Masters::Cluster(_) => None,
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
    pub(crate) fn fields(&self, raw: Raw, token: &str, phase: Phase) -> Result<Fields, Error> {
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
}

/// Notes that these attempts are sent over the connection of this number.
fn mark_all(attempts: &[impl Borrow<Attempt>], generation: u64) {
    attempts.iter().for_each(|attempt| attempt.borrow().mark_sent(generation));
}

/// The number of the earliest connection over which anything of these attempts was sent.
fn first_sent(attempts: &[impl Borrow<Attempt>]) -> Option<u64> {
    attempts.iter().filter_map(|attempt| attempt.borrow().first_sent()).min()
}

impl Masters {
    async fn one(dial: Dial, sentinels: Option<Arc<Sentinels>>) -> Result<Self, Error> {
        let dial = Arc::new(dial);
        Ok(Self::One { link: Link::connect(dial.clone()).await?, dial, sentinels })
    }
}

/// Closes the command connections of a client that does not come to be, by an error or because nobody waits for it.
pub(crate) struct UnfinishedLinks {
    links: Arc<Links>,
    armed: bool,
}

impl UnfinishedLinks {
    pub(crate) fn new(links: Links) -> Self {
        Self { links: Arc::new(links), armed: true }
    }

    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    /// The links of a client that has come to be.
    pub(crate) fn finish(mut self) -> Arc<Links> {
        self.armed = false;
        self.links.clone()
    }
}

impl Drop for UnfinishedLinks {
    fn drop(&mut self) {
        if self.armed {
            self.links.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use lock_core::driver::Kind;
    use lock_core::{ErrorKind, Owner};
    use lock_testkit::testing::installed;
    use lock_testkit_servers::redis::RedisServer;

    use super::*;
    use crate::store::scripts::ACQUIRE_SHORT;

    #[tokio::test]
    async fn a_request_whose_outcome_stays_unknown_is_sent_again_after_pauses() {
        let Some(server) = installed(RedisServer::start_own().await) else { return };
        let operator = server.client().unwrap();
        let config = RedisConfig::new(server.url());
        let links = Links::connect(&config, config.check().unwrap()).await.unwrap();
        let attempt = Attempt::new("again".into(), Kind::Mutex, Owner::new(), Duration::from_secs(30)).unwrap();
        let nonce = format!("{}:0123456789abcdef:{{}}:", attempt.id);
        let (keys, args) = (["a", "b", "c"].map(Cow::Borrowed), [nonce.as_bytes(), b"30000"]);
        let ask = async |until| {
            links.run_for(&attempt, Request::new(&ACQUIRE_SHORT, &keys, &args), Phase::Acquire, until).await
        };
        let runs = async || {
            let stats = operator.command(&["INFO", "commandstats"]).await.unwrap().to_string();
            let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=").map(str::to_owned));
            line.map_or(0, |line| line.split(',').next().unwrap().parse::<u32>().unwrap())
        };
        ask(links.until()).await.unwrap();
        operator.command(&["DEL", "a"]).await.unwrap();
        operator.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
        let late = SystemClock.now().plus(Duration::from_secs(30));
        let runs = loop {
            assert!(SystemClock.now() < late, "every refusal is told as one");
            let before = runs().await;
            // A refusal may be that of the probe.
            links.only().unwrap().pretend_probing();
            let error = ask(SystemClock.now().plus(Duration::from_millis(500))).await.unwrap_err();
            // Otherwise the reply to the probe has come meanwhile.
            if error.kind() == ErrorKind::Indeterminate {
                break runs().await - before;
            }
        };
        assert!((2..=8).contains(&runs), "it was sent {runs} times");
        links.close();
    }
}
