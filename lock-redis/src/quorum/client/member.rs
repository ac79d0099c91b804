//! One server of a quorum.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
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
use crate::quorum::registry::{EVERY_ROUND, PendingRelease, PendingReleases};
use crate::store::reply::Fields;

/// One server: its connection, and what it has to release when it can be reached again.
#[derive(Debug)]
pub(in crate::quorum) struct Member {
    pub(in crate::quorum) link: Arc<Link>,
    queue: Arc<SendQueue>,
    pub(super) op_timeout: Duration,
    /// The releases that could not be confirmed so far.
    pending: PendingReleases,
    /// Tells the background task of a release that has become pending.
    pending_added: Arc<Notify>,
}

impl Member {
    /// Dials in the background, for ever.
    pub(super) fn start(
        dial: Arc<Dial>,
        predecessors: Arc<Predecessors>,
        op_timeout: Duration,
        pending_added: Arc<Notify>,
    ) -> Arc<Self> {
        let link = Link::begin(dial, predecessors);
        let queue = SendQueue::over(link.clone());
        Arc::new(Self { link, queue, op_timeout, pending: PendingReleases::default(), pending_added })
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

    /// Releases. A release that the server does not confirm stays pending, unless it has not been reachable since the attempt began. The
    /// undoing of a round is pending from the start: the attempt goes on, and what is not undone yet is no part of its grant.
    ///
    /// # Cancel safety
    /// A dropped release stays pending too.
    pub(in crate::quorum) fn release(
        self: Arc<Self>,
        pending_release: PendingRelease,
        until: BootInstant,
    ) -> impl Future<Output = Result<ScriptVote, Failed>> + Send + 'static {
        UnconfirmedRelease { member: self, pending_release, is_confirmed: false }.send(until)
    }

    /// Carries out the pending release of an attempt, if there is one: what the server has of it afterwards is not to be undone.
    pub(in crate::quorum) async fn release_pending(
        self: &Arc<Self>,
        id: GrantId,
        until: BootInstant,
    ) -> Result<(), Failed> {
        let Some(pending_release) = self.pending.of(id) else { return Ok(()) };
        match Box::pin(self.clone().release(pending_release, until)).await {
            Err(failed) if !failed.wrong_type => Err(failed),
            _ => Ok(()),
        }
    }

    /// Keeps a release as pending, if the server may have something of its attempt and there is room for it.
    fn keep_pending(&self, pending_release: PendingRelease, is_sent: bool) {
        if pending_release.since.is_some_and(|since| !self.link.was_up_since(since)) {
            return;
        }
        if self.pending.add(pending_release, is_sent) && !is_sent {
            self.pending_added.notify_one();
        }
    }

    /// Whether any release is pending.
    pub(in crate::quorum) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Sends so many of the pending releases at most, if the server can be reached, and forgets what is over. What is on its way is pending
    /// until it is confirmed.
    pub(super) fn send_pending(self: &Arc<Self>, most: usize) -> Vec<BoxFuture<'static, ()>> {
        let now = SystemClock.now();
        self.pending.forget_over(now);
        if !self.link.is_up() {
            return Vec::new();
        }
        let until = now.plus(self.op_timeout);
        self.pending.send(most, |pending_release| self.clone().release(pending_release, until).map(drop).boxed())
    }

    /// Sends the pending releases until `over_at`, so many at most at once, for as long as the server confirms any of them.
    pub(super) async fn send_all_pending(self: Arc<Self>, most: usize, over_at: BootInstant) {
        while SystemClock.now() < over_at {
            let (sent, before) = (self.send_pending(most), self.pending.len());
            join_all(sent).await;
            if self.pending.len() >= before {
                break;
            }
        }
    }

    /// Reads `{token, ...}`, where the token says which request is answered: a reply to another one costs the connection.
    pub(in crate::quorum) fn fields(&self, raw: Raw, token: &str, phase: Phase) -> Result<Fields<'_>, Error> {
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

/// A release that stays pending unless it is confirmed.
struct UnconfirmedRelease {
    member: Arc<Member>,
    pending_release: PendingRelease,
    is_confirmed: bool,
}

impl UnconfirmedRelease {
    async fn send(mut self, until: BootInstant) -> Result<ScriptVote, Failed> {
        let (member, pending_release) = (self.member.clone(), &self.pending_release);
        if pending_release.last_round < EVERY_ROUND {
            member.keep_pending(pending_release.clone(), true);
        }
        let outcome = member.clone().put(pending_release.request.clone(), until).await;
        // What is of another type at the lock's place is nobody's grant. Any other refusal may pass, before the lease does.
        if outcome.as_ref().map_or_else(|failed| failed.wrong_type, |_| true) {
            self.is_confirmed = true;
            member.pending.settle(pending_release.id, pending_release.last_round);
        }
        outcome
    }
}

impl Drop for UnconfirmedRelease {
    fn drop(&mut self) {
        if !self.is_confirmed {
            self.member.keep_pending(self.pending_release.clone(), false);
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
    use crate::quorum::registry::MOST_PENDING;
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

    fn release(over_at: BootInstant) -> PendingRelease {
        let call = Call::of(["lock", "forced", "waiters"]);
        let call = call.with(["00112233445566778899aabbccddeeff", "1", "", "", "", "0", ""]);
        let request = ScriptRequest::new(&scripts::RELEASE, call, Phase::Release);
        let (id, since) = (GrantId::random().unwrap(), Some(SystemClock.now()));
        PendingRelease { id, last_round: EVERY_ROUND, since, over_at, request: Arc::new(request) }
    }

    #[tokio::test]
    async fn nothing_is_pending_beyond_the_lease_for_a_server_that_stays_away() {
        let member = member(Address::Tcp { host: "127.0.0.1".to_owned(), port: 1 });
        let now = SystemClock.now();
        for (over_at, stays) in [(now, false), (now.plus(Duration::from_secs(60)), true)] {
            let pending_release = release(over_at);
            assert!(member.pending.add(pending_release, false));
            assert!(member.send_pending(usize::MAX).is_empty(), "there is no connection");
            assert_eq!(member.has_pending(), stays);
        }
        member.link.close();
    }

    /// The task that would have waited for its answer has too much to do.
    #[tokio::test]
    async fn a_release_that_is_dropped_is_pending_and_no_more_than_the_bound_says() {
        let Some((server, member)) = connected().await else { return };
        let now = SystemClock.now();
        let (until, over_at) = (now.plus(Duration::from_secs(10)), now.plus(Duration::from_secs(60)));
        assert!(member.clone().release(release(over_at), until).await.is_ok() && !member.has_pending(), "answered");
        server.stop().unwrap();
        assert!(member.clone().release(release(over_at), until).now_or_never().is_none());
        assert!(member.has_pending());
        for _ in 0..MOST_PENDING {
            member.keep_pending(release(over_at), false);
        }
        assert_eq!(member.pending.len(), MOST_PENDING);
        server.cont().unwrap();
        member.link.close();
    }

    /// The connection stays: a server that refuses need not be away.
    #[tokio::test]
    async fn a_release_that_is_refused_is_pending_until_it_is_carried_out() {
        let Some((server, member)) = connected().await else { return };
        let now = SystemClock.now();
        let (until, over_at) = (now.plus(Duration::from_secs(10)), now.plus(Duration::from_secs(60)));
        let operator = server.client().unwrap();
        operator.command(&["ACL", "SETUSER", "default", "-@scripting"]).await.unwrap();
        let pending_release = release(over_at);
        let refused = member.clone().release(pending_release.clone(), until).await.unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::Denied);
        assert!(member.link.is_up() && member.has_pending());
        operator.command(&["ACL", "SETUSER", "default", "+@scripting"]).await.unwrap();
        futures_util::future::join_all(member.send_pending(usize::MAX)).await;
        assert!(!member.has_pending());
        member.link.close();
    }

    #[tokio::test]
    async fn the_undo_of_an_earlier_round_takes_the_place_of_no_pending_release() {
        let Some((_server, member)) = connected().await else { return };
        let whole = release(SystemClock.now().plus(Duration::from_secs(60)));
        let undo = PendingRelease { last_round: 1, ..whole.clone() };
        let pending =
            || (member.pending.len(), member.pending.of(whole.id).map(|pending_release| pending_release.last_round));
        for (pending_release, last_round) in [(&undo, 1), (&whole, EVERY_ROUND), (&undo, EVERY_ROUND)] {
            member.keep_pending(pending_release.clone(), false);
            assert_eq!(pending(), (1, Some(last_round)));
        }
        member.pending.settle(whole.id, 1);
        assert_eq!(pending(), (1, Some(EVERY_ROUND)), "only the undo is confirmed");
        member.pending.settle(whole.id, EVERY_ROUND);
        assert!(!member.has_pending());
        member.link.close();
    }

    #[tokio::test]
    async fn what_is_pending_stays_so_on_its_way_until_it_is_confirmed() {
        let Some((server, member)) = connected().await else { return };
        let over_at = SystemClock.now().plus(Duration::from_secs(60));
        server.stop().unwrap();
        member.keep_pending(release(over_at), false);
        let sent = member.send_pending(usize::MAX);
        assert!(sent.len() == 1 && member.has_pending());
        assert!(member.send_pending(usize::MAX).is_empty(), "it is on its way already");
        let mut sent = futures_util::future::join_all(sent);
        assert!((&mut sent).now_or_never().is_none() && member.has_pending());
        server.cont().unwrap();
        sent.await;
        assert!(!member.has_pending());
        member.link.close();
    }
}
