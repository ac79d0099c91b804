//! One server of a quorum.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, GrantId, Phase};
use tokio::sync::Notify;

use super::send_queue::{ScriptRequest, SendQueue};
use crate::client::dial::Dial;
use crate::client::link::Link;
use crate::client::link::predecessors::Predecessors;
use crate::client::link::request::{Failed, Raw};
use crate::error::{self, RequestFate};
use crate::quorum::ballot::ScriptVote;
use crate::quorum::registry::{EVERY_ROUND, OwedRelease, OwedReleases};
use crate::store::reply::Fields;

/// One server: its connection, and what it has to release when it can be reached again.
#[derive(Debug)]
pub(in crate::quorum) struct Member {
    pub(in crate::quorum) link: Arc<Link>,
    queue: Arc<SendQueue>,
    op_timeout: Duration,
    /// The releases that could not be confirmed so far.
    owed: OwedReleases,
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
        Arc::new(Self { link, queue, op_timeout, owed: OwedReleases::default(), owing })
    }

    /// Runs a script now or, without a connection, not at all: a request that waited could come after its own undo.
    pub(in crate::quorum) async fn ask(&self, request: &Arc<ScriptRequest>, until: BootInstant) -> Result<Raw, Failed> {
        self.queue.run(request, until).await
    }

    /// Runs a script whose reply is its first argument, a sign and perhaps more.
    pub(in crate::quorum) async fn put(
        self: Arc<Self>,
        request: Arc<ScriptRequest>,
        until: BootInstant,
    ) -> Result<ScriptVote, Failed> {
        let Raw { value, generation } = self.ask(&request, until).await?;
        ScriptVote::read(value, request.call.args().next().unwrap_or_default())
            .ok_or_else(|| self.not_mine(generation, request.phase))
    }

    /// Releases. A release that the server does not confirm is owed, unless it has not been reachable since the attempt began. The
    /// undoing of a round is owed from the start: the attempt goes on, and what is not undone yet is no part of its grant.
    ///
    /// # Cancel safety
    /// A dropped release is owed too.
    pub(in crate::quorum) fn release(
        self: Arc<Self>,
        owed_release: OwedRelease,
        until: BootInstant,
    ) -> impl Future<Output = Result<ScriptVote, Failed>> + Send + 'static {
        UnconfirmedRelease { member: self, owed_release, is_confirmed: false }.send(until)
    }

    /// Carries out what is owed of an attempt, if anything is: what the server has of it afterwards is not to be undone.
    pub(in crate::quorum) async fn pay(self: &Arc<Self>, id: GrantId, until: BootInstant) -> Result<(), Failed> {
        let Some(owed_release) = self.owed.of(id) else { return Ok(()) };
        match Box::pin(self.clone().release(owed_release, until)).await {
            Err(failed) if !failed.wrong_type => Err(failed),
            _ => Ok(()),
        }
    }

    /// Owes a release, if the server may have something of its attempt and there is room for it.
    fn owe(&self, owed_release: OwedRelease, is_sent: bool) {
        if owed_release.since.is_some_and(|since| !self.link.was_up_since(since)) {
            return;
        }
        if self.owed.add(owed_release, is_sent) && !is_sent {
            self.owing.notify_one();
        }
    }

    /// Whether there is anything to be paid.
    pub(in crate::quorum) fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Releases so much of what is owed at most, if the server can be reached, and forgets what is over. What is on its way is owed
    /// until it is confirmed.
    pub(super) fn send_owed(self: &Arc<Self>, most: usize) -> Vec<BoxFuture<'static, ()>> {
        let now = SystemClock.now();
        self.owed.forget_over(now);
        if !self.link.is_up() {
            return Vec::new();
        }
        let until = now.plus(self.op_timeout);
        self.owed.send(most, |owed_release| self.clone().release(owed_release, until).map(drop).boxed())
    }

    /// Reads `{token, ...}`, where the token says which request is answered: a reply to another one costs the connection.
    pub(in crate::quorum) fn fields(&self, raw: Raw, token: &str, phase: Phase) -> Result<Fields, Error> {
        let fields = Fields::answering(token, raw.value, phase, self.link.server());
        fields.ok_or_else(|| self.not_mine(raw.generation, phase).error)
    }

    /// A reply to somebody else's request: the connection cannot be trusted any more.
    fn not_mine(&self, generation: u64, phase: Phase) -> Failed {
        self.link.give_up_present(generation);
        let error = error::of_another(phase, self.link.server());
        Failed { fate: RequestFate::Unknown, error, wrong_type: false }
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
            member.owed.settle(owed_release.id, owed_release.last_round);
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

#[cfg(test)]
mod tests {
    use lock_core::ErrorKind;
    use lock_testkit::testing::installed;
    use lock_testkit_servers::redis::RedisServer;

    use super::*;
    use crate::address::Address;
    use crate::client::dial::Opener;
    use crate::quorum::registry::MOST_OWED;
    use crate::quorum::store::scripts;
    use crate::store::call::Call;
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
            assert!(member.owed.add(owed_release, false));
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
        assert_eq!(member.owed.len(), MOST_OWED);
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
        let owed = || (member.owed.len(), member.owed.of(whole.id).map(|owed_release| owed_release.last_round));
        for (owed_release, last_round) in [(&undo, 1), (&whole, EVERY_ROUND), (&undo, EVERY_ROUND)] {
            member.owe(owed_release.clone(), false);
            assert_eq!(owed(), (1, Some(last_round)));
        }
        member.owed.settle(whole.id, 1);
        assert_eq!(owed(), (1, Some(EVERY_ROUND)), "only the undo is confirmed");
        member.owed.settle(whole.id, EVERY_ROUND);
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
}
