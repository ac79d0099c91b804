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

/// Frees whatever the round; the largest number that a script keeps exactly.
pub(super) const EVERY_ROUND: u64 = (1 << 53) - 1;

/// The release that an attempt owes a server.
#[derive(Debug, Clone)]
pub(super) struct OwedRelease {
    pub(super) id: GrantId,
    /// The last round that it frees. It frees whatever those before have left, too.
    pub(super) last_round: u64,
    /// The instant since when the attempt has been sending; `None` if it is of another client, which may have reached servers that this
    /// one has not.
    pub(super) since: Option<BootInstant>,
    /// The instant at which the servers have forgotten it by themselves.
    pub(super) over_at: BootInstant,
    pub(super) request: Arc<ScriptRequest>,
}

/// A release that is owed to one server, until it is confirmed.
#[derive(Debug)]
struct Debt {
    owed_release: OwedRelease,
    /// Whether it is on its way.
    is_sent: bool,
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
    owed_releases: Mutex<HashMap<GrantId, Debt>>,
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

    /// Releases. A release that the server does not confirm is owed, unless it has not been reachable since the attempt began. The
    /// undoing of a round is owed from the start: the attempt goes on, and what is not undone yet is no part of its grant.
    ///
    /// # Cancel safety
    /// A dropped release is owed too.
    pub(super) fn release(
        self: Arc<Self>,
        owed_release: OwedRelease,
        until: BootInstant,
    ) -> impl Future<Output = Result<ScriptVote, Failed>> + Send + 'static {
        UnconfirmedRelease { member: self, owed_release, is_confirmed: false }.send(until)
    }

    /// Carries out what is owed of an attempt, if anything is: what the server has of it afterwards is not to be undone.
    pub(super) async fn pay(self: &Arc<Self>, id: GrantId, until: BootInstant) -> Result<(), Failed> {
        let owed_release = self.owed_releases().get(&id).map(|debt| debt.owed_release.clone());
        match owed_release {
            None => Ok(()),
            Some(owed_release) => match Box::pin(self.clone().release(owed_release, until)).await {
                Err(failed) if !failed.wrong_type => Err(failed),
                _ => Ok(()),
            },
        }
    }

    /// Owes a release, if the server may have something of its attempt and there is room for it. One that frees later rounds too
    /// stays in its place.
    fn owe(&self, owed_release: OwedRelease, is_sent: bool) {
        if owed_release.since.is_some_and(|since| !self.link.was_up_since(since)) {
            return;
        }
        let mut owed_releases = self.owed_releases();
        match owed_releases.get(&owed_release.id) {
            Some(debt) if debt.owed_release.last_round > owed_release.last_round => return,
            None if owed_releases.len() >= MOST_OWED => return,
            _ => _ = owed_releases.insert(owed_release.id, Debt { owed_release, is_sent }),
        }
        if !is_sent {
            self.owing.notify_one();
        }
    }

    /// Takes note that everything of an attempt up to this round is freed.
    fn is_paid(&self, id: GrantId, last_round: u64) {
        let mut owed_releases = self.owed_releases();
        if owed_releases.get(&id).is_some_and(|debt| debt.owed_release.last_round <= last_round) {
            owed_releases.remove(&id);
        }
    }

    /// Whether there is anything to be paid.
    pub(super) fn owes(&self) -> bool {
        !self.owed_releases().is_empty()
    }

    /// Releases so much of what is owed at most, if the server can be reached, and forgets what is over. What is on its way is owed
    /// until it is confirmed.
    pub(super) fn send_owed(self: &Arc<Self>, most: usize) -> Vec<BoxFuture<'static, ()>> {
        let now = SystemClock.now();
        let mut owed_releases = self.owed_releases();
        owed_releases.retain(|_, debt| now < debt.owed_release.over_at);
        if !self.link.is_up() {
            return Vec::new();
        }
        let until = now.plus(self.op_timeout);
        let to_send = owed_releases.values_mut().filter(|debt| !debt.is_sent).take(most);
        let send = |debt: &mut Debt| {
            debt.is_sent = true;
            self.clone().release(debt.owed_release.clone(), until).map(drop).boxed()
        };
        to_send.map(send).collect()
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

    fn owed_releases(&self) -> MutexGuard<'_, HashMap<GrantId, Debt>> {
        // Every critical section leaves the map whole.
        self.owed_releases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A release that is owed unless it is confirmed.
struct UnconfirmedRelease {
    member: Arc<Member>,
    owed_release: OwedRelease,
    is_confirmed: bool,
}

impl UnconfirmedRelease {
    async fn send(mut self, until: BootInstant) -> Result<ScriptVote, Failed> {
        let (member, owed_release) = (self.member.clone(), &self.owed_release);
        if owed_release.last_round < EVERY_ROUND {
            member.owe(owed_release.clone(), true);
        }
        let outcome = member.clone().put(owed_release.request.clone(), until).await;
        // What is of another type at the lock's place is nobody's grant. Any other refusal may pass, before the lease does.
        if outcome.as_ref().map_or_else(|failed| failed.wrong_type, |_| true) {
            self.is_confirmed = true;
            member.is_paid(owed_release.id, owed_release.last_round);
        }
        outcome
    }
}

impl Drop for UnconfirmedRelease {
    fn drop(&mut self) {
        if !self.is_confirmed {
            self.member.owe(self.owed_release.clone(), false);
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
        let (id, since) = (GrantId::random().unwrap(), Some(SystemClock.now()));
        OwedRelease { id, last_round: EVERY_ROUND, since, over_at, request: Arc::new(request) }
    }

    #[tokio::test]
    async fn a_server_that_stays_away_is_owed_nothing_beyond_the_lease() {
        let member = member(Address::Tcp { host: "127.0.0.1".to_owned(), port: 1 });
        let now = SystemClock.now();
        for (over_at, owes) in [(now, false), (now.plus(Duration::from_secs(60)), true)] {
            let owed_release = release(over_at);
            member.owed_releases().insert(owed_release.id, Debt { owed_release, is_sent: false });
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
            member.owe(release(over_at), false);
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

    #[tokio::test]
    async fn the_undo_of_an_earlier_round_takes_the_place_of_no_release_that_is_owed() {
        let Some((_server, member)) = connected().await else { return };
        let whole = release(SystemClock.now().plus(Duration::from_secs(60)));
        let undo = OwedRelease { last_round: 1, ..whole.clone() };
        let owed = || member.owed_releases().values().map(|debt| debt.owed_release.last_round).collect::<Vec<_>>();
        for (owed_release, last_round) in [(&undo, 1), (&whole, EVERY_ROUND), (&undo, EVERY_ROUND)] {
            member.owe(owed_release.clone(), false);
            assert_eq!(owed(), [last_round]);
        }
        member.is_paid(whole.id, 1);
        assert_eq!(owed(), [EVERY_ROUND], "only the undo is confirmed");
        member.is_paid(whole.id, EVERY_ROUND);
        assert!(!member.owes());
        member.link.close();
    }

    #[tokio::test]
    async fn what_is_owed_stays_so_on_its_way_until_it_is_confirmed() {
        let Some((server, member)) = connected().await else { return };
        let over_at = SystemClock.now().plus(Duration::from_secs(60));
        server.stop().unwrap();
        member.owe(release(over_at), false);
        let sent = member.send_owed(usize::MAX);
        assert!(sent.len() == 1 && member.owes());
        assert!(member.send_owed(usize::MAX).is_empty(), "it is on its way already");
        let mut sent = futures_util::future::join_all(sent);
        assert!((&mut sent).now_or_never().is_none() && member.owes());
        server.cont().unwrap();
        sent.await;
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
