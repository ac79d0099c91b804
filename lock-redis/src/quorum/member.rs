//! One server of a quorum.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, GrantId, Phase};
use redis::Value;
use tokio::sync::Notify;

use super::script_request::ScriptRequest;
use super::send_queue::SendQueue;
use crate::client::dial::Dial;
use crate::client::link::Link;
use crate::client::link::request::{Failed, Raw};
use crate::client::predecessors::Predecessors;
use crate::error::{self, RequestFate};
use crate::store::reply::Fields;

/// The reply of a script that says yes or no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptVote {
    pub(super) yes: bool,
    pub(super) rest: String,
}

/// The release that an attempt owes a server, and since when it has been sending.
#[derive(Debug, Clone)]
pub(super) struct OwedRelease {
    pub(super) id: GrantId,
    pub(super) since: BootInstant,
    /// The instant at which the servers have forgotten it by themselves.
    pub(super) over_at: BootInstant,
    pub(super) request: Arc<ScriptRequest>,
}

/// The number of releases that are owed to one server. Of more than that the leases have to end by themselves.
const MOST_OWED: usize = 65_536;

/// One server: its connection, and what it has to release when it can be reached again.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) link: Arc<Link>,
    queue: Arc<SendQueue>,
    op_timeout: Duration,
    /// At most one for each attempt that was under way, or held, when the server stopped answering: without a connection
    /// nothing is sent, and so nothing is owed. Each is forgotten when its lease is over; never more than [`MOST_OWED`].
    owed_releases: Mutex<HashMap<GrantId, OwedRelease>>,
    /// Tells the background task of an owed release.
    owing: Arc<Notify>,
}

impl Member {
    /// Dials in the background, for ever.
    pub(super) fn start(
        dial: Arc<Dial>,
        predecessors: Arc<Predecessors>,
        op_timeout: Duration,
        owing: Arc<Notify>,
    ) -> Arc<Self> {
        let link = Link::begin(dial, predecessors);
        let queue = SendQueue::over(link.clone());
        Arc::new(Self { link, queue, op_timeout, owed_releases: Mutex::default(), owing })
    }

    /// Runs a script now or, without a connection, not at all: a request that waited could come after its own undo.
    pub(super) async fn ask(&self, request: &Arc<ScriptRequest>, until: BootInstant) -> Result<Raw, Failed> {
        self.queue.run(request, until).await
    }

    /// Runs a script whose reply is its first argument, a sign and perhaps more.
    pub(super) async fn put(
        self: Arc<Self>,
        request: Arc<ScriptRequest>,
        until: BootInstant,
    ) -> Result<ScriptVote, Failed> {
        let Raw { value, generation } = self.ask(&request, until).await?;
        said(value, request.call.args().next().unwrap_or_default())
            .ok_or_else(|| self.not_mine(generation, request.phase))
    }

    /// Releases. A release that the server does not confirm is owed, unless it has not been reachable since the attempt began.
    ///
    /// # Cancel safety
    /// A dropped release is owed too.
    pub(super) async fn release(
        self: Arc<Self>,
        owed_release: OwedRelease,
        until: BootInstant,
    ) -> Result<ScriptVote, Failed> {
        let request = owed_release.request.clone();
        let mut unconfirmed = UnconfirmedRelease { member: self.clone(), owed_release: Some(owed_release) };
        let outcome = self.clone().put(request, until).await;
        // What is of another type at the lock's place is nobody's grant. Any other refusal may pass, before the lease does.
        if outcome.as_ref().map_or_else(|failed| failed.wrong_type, |_| true) {
            unconfirmed.owed_release = None;
        }
        outcome
    }

    /// Owes a release, if the server may have something of its attempt and there is room for it.
    fn owe(&self, owed_release: OwedRelease) {
        if !self.link.was_up_since(owed_release.since) {
            return;
        }
        let mut owed_releases = self.owed_releases();
        if owed_releases.len() < MOST_OWED || owed_releases.contains_key(&owed_release.id) {
            owed_releases.insert(owed_release.id, owed_release);
            self.owing.notify_one();
        }
    }

    /// Whether there is anything to be paid.
    pub(super) fn owes(&self) -> bool {
        !self.owed_releases().is_empty()
    }

    /// Releases so much of what is owed at most, if the server can be reached, and forgets what is over.
    pub(super) fn send_owed(self: &Arc<Self>, most: usize) -> Vec<BoxFuture<'static, ()>> {
        let now = SystemClock.now();
        let mut owed_releases = self.owed_releases();
        owed_releases.retain(|_, owed_release| now < owed_release.over_at);
        if !self.link.is_up() {
            return Vec::new();
        }
        let until = now.plus(self.op_timeout);
        let sent: Vec<_> = owed_releases.keys().take(most).copied().collect();
        let sent = sent.into_iter().filter_map(|id| owed_releases.remove(&id));
        sent.map(|owed_release| self.clone().release(owed_release, until).map(drop).boxed()).collect()
    }

    /// Reads `{token, ...}`, where the token says which request is answered: a reply to another one costs the connection.
    pub(super) fn fields(&self, raw: Raw, token: &str, phase: Phase) -> Result<Fields, Error> {
        let fields = Fields::answering(token, raw.value, phase, self.link.server());
        fields.ok_or_else(|| self.not_mine(raw.generation, phase).error)
    }

    /// A reply to somebody else's request: the connection cannot be trusted any more.
    fn not_mine(&self, generation: u64, phase: Phase) -> Failed {
        self.link.give_up_present(generation);
        let error = error::of_another(phase, self.link.server());
        Failed { fate: RequestFate::Unknown, error, wrong_type: false }
    }

    fn owed_releases(&self) -> MutexGuard<'_, HashMap<GrantId, OwedRelease>> {
        // Every critical section leaves the map whole.
        self.owed_releases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A release that is owed unless it is confirmed.
struct UnconfirmedRelease {
    member: Arc<Member>,
    owed_release: Option<OwedRelease>,
}

impl Drop for UnconfirmedRelease {
    fn drop(&mut self) {
        if let Some(owed_release) = self.owed_release.take() {
            self.member.owe(owed_release);
        }
    }
}

/// Reads `<nonce><sign><rest>`.
pub(super) fn said(value: Value, nonce: &str) -> Option<ScriptVote> {
    let Value::BulkString(bytes) = value else { return None };
    let (sign, rest) = bytes.strip_prefix(nonce.as_bytes())?.split_first()?;
    let yes = match sign {
        b'+' => true,
        b'-' => false,
        _ => return None,
    };
    Some(ScriptVote { yes, rest: String::from_utf8_lossy(rest).into_owned() })
}

#[cfg(test)]
mod tests {
    use lock_core::ErrorKind;
    use lock_testkit::testing::installed;
    use lock_testkit_servers::redis::RedisServer;

    use super::*;
    use crate::address::Address;
    use crate::client::dial::Opener;
    use crate::client::link::call::Call;
    use crate::quorum::scripts;
    use crate::url::Login;

    fn member(address: Address) -> Arc<Member> {
        let opener = Opener::new(&Login::default(), 0, None, Duration::from_secs(1)).unwrap();
        Member::start(
            Arc::new(Dial::to(Arc::new(opener), address)),
            Arc::default(),
            Duration::from_secs(1),
            Arc::default(),
        )
    }

    /// A server of its own, and a member that has reached it.
    async fn connected() -> Option<(RedisServer, Arc<Member>)> {
        let server = installed(RedisServer::start_own().await)?;
        let (host, port) = server.address().rsplit_once(':').map(|(host, port)| (host.to_owned(), port)).unwrap();
        let member = member(Address::Tcp { host, port: port.parse().unwrap() });
        member.link.ready(SystemClock.now().plus(Duration::from_secs(10))).await.unwrap();
        Some((server, member))
    }

    fn release(over_at: BootInstant) -> OwedRelease {
        let call = Call::of(["lock", "forced", "waiters"]);
        let call = call.with(["00112233445566778899aabbccddeeff", "1", "", "", "", "0", ""]);
        let request = ScriptRequest::new(&scripts::RELEASE, call, Phase::Release);
        OwedRelease { id: GrantId::random().unwrap(), since: SystemClock.now(), over_at, request: Arc::new(request) }
    }

    #[tokio::test]
    async fn a_server_that_stays_away_is_owed_nothing_beyond_the_lease() {
        let member = member(Address::Tcp { host: "127.0.0.1".to_owned(), port: 1 });
        let now = SystemClock.now();
        for (over_at, owes) in [(now, false), (now.plus(Duration::from_secs(60)), true)] {
            let owed_release = release(over_at);
            member.owed_releases().insert(owed_release.id, owed_release);
            assert!(member.send_owed(usize::MAX).is_empty(), "there is no connection");
            assert_eq!(member.owes(), owes);
        }
        member.link.close();
    }

    /// The task that would have waited for its answer has too much to do.
    #[tokio::test]
    async fn a_release_that_is_dropped_is_owed_and_no_more_than_the_bound_says() {
        let Some((server, member)) = connected().await else { return };
        let now = SystemClock.now();
        let (until, over_at) = (now.plus(Duration::from_secs(10)), now.plus(Duration::from_secs(60)));
        assert!(member.clone().release(release(over_at), until).await.is_ok() && !member.owes(), "answered");
        server.stop().unwrap();
        assert!(member.clone().release(release(over_at), until).now_or_never().is_none());
        assert!(member.owes());
        for _ in 0..MOST_OWED {
            member.owe(release(over_at));
        }
        assert_eq!(member.owed_releases().len(), MOST_OWED);
        server.cont().unwrap();
        member.link.close();
    }

    /// The connection stays: a server that refuses need not be away.
    #[tokio::test]
    async fn a_release_that_is_refused_is_owed_until_it_is_carried_out() {
        let Some((server, member)) = connected().await else { return };
        let now = SystemClock.now();
        let (until, over_at) = (now.plus(Duration::from_secs(10)), now.plus(Duration::from_secs(60)));
        let operator = server.client().unwrap();
        operator.command(&["ACL", "SETUSER", "default", "-@scripting"]).await.unwrap();
        let owed_release = release(over_at);
        let refused = member.clone().release(owed_release.clone(), until).await.unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::Denied);
        assert!(member.link.is_up() && member.owes());
        operator.command(&["ACL", "SETUSER", "default", "+@scripting"]).await.unwrap();
        futures_util::future::join_all(member.send_owed(usize::MAX)).await;
        assert!(!member.owes());
        member.link.close();
    }

    #[test]
    fn only_replies_with_the_nonce_count() {
        let reply = |text: &str| said(Value::BulkString(text.into()), "abc");
        assert_eq!(reply("abc+"), Some(ScriptVote { yes: true, rest: String::new() }));
        assert_eq!(reply("abc-def"), Some(ScriptVote { yes: false, rest: "def".to_owned() }));
        for wrong in ["abd+", "abc", "", "abc?"] {
            assert_eq!(reply(wrong), None, "{wrong}");
        }
        assert_eq!(said(Value::Int(1), "abc"), None);
    }
}
