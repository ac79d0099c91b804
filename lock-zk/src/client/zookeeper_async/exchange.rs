//! Nodes in the place of others, without a transaction. The new ones are made first, so that at no instant less is held than
//! is believed; if the old ones are there after that, they were there all the while, and are deleted. Otherwise, or if an
//! answer is lost, the new ones are taken back. Whatever began runs to its end, whether somebody waits for it or not, those of one attempt
//! one after another. So a new one that is there before anything was made is that of an earlier exchange which was carried out, and
//! whose answer nobody took; those that could not be taken back are noted, and are taken back by the next one. An exchange for which nobody
//! waits any more when its turn comes has not begun, and sends nothing.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lock_core::GrantId;
use lock_core::driver::wait;
use tokio::sync::{Mutex, oneshot};
use tokio::time::sleep;
use zookeeper_async::CreateMode;

use super::requests::Requests;
use super::{Created, Departure, Failure, Fate, NewNode, Node, Response};

/// The paths of new nodes that exchanges which were not carried out could not take back.
type LeftNodes = HashSet<String>;

/// The number of turns. Attempts have ids at random: so many exchanges are under way at once that few wait for those of others.
const TURNS: usize = 64;

/// The turns of a session's exchanges: those of one attempt have the same one.
#[derive(Debug)]
pub(super) struct Exchanges(Vec<Arc<Mutex<LeftNodes>>>);

impl Default for Exchanges {
    fn default() -> Self {
        Self((0..TURNS).map(|_| Arc::default()).collect())
    }
}

impl Exchanges {
    fn turn_of(&self, attempt: GrantId) -> &Arc<Mutex<LeftNodes>> {
        // There are so many.
        &self.0[usize::from(attempt.as_bytes()[0]) % TURNS]
    }

    /// Waits until no exchange of this attempt is under way that was begun before.
    pub(super) async fn done(&self, attempt: GrantId) {
        drop(self.turn_of(attempt).lock().await);
    }
}

struct Exchange {
    requests: Arc<Requests>,
    old: Vec<String>,
    new: Vec<NewNode>,
    data: Vec<u8>,
}

/// Starts an exchange.
pub(super) fn begin(
    requests: &Arc<Requests>,
    exchanges: &Exchanges,
    attempt: GrantId,
    old: &[String],
    new: &[NewNode],
    data: &[u8],
) -> Response<'static, Vec<String>> {
    let exchange = Exchange { requests: requests.clone(), old: old.to_vec(), new: new.to_vec(), data: data.to_vec() };
    let (answer, answered) = oneshot::channel::<Result<_, _>>();
    // Its turn is asked for now: whoever waits for those before it waits for this one, too.
    let mut turn = Box::pin(exchanges.turn_of(attempt).clone().lock_owned());
    let taken = (&mut turn).now_or_never();
    requests.runtime.spawn(async move {
        let mut left = match taken {
            Some(turn) => turn,
            None => turn.await,
        };
        // Nothing was sent: whoever cancels the attempt waits for its turn, and then looks.
        if !answer.is_closed() {
            let _ = answer.send(exchange.run(&mut left).await);
        }
    });
    let gone = |_| Err(Failure { fate: Fate::Ended, source: "the client is gone".into() });
    Box::pin(async move { answered.await.unwrap_or_else(gone) })
}

impl Exchange {
    async fn run(self, left: &mut LeftNodes) -> Result<Vec<String>, Failure> {
        self.clear_left(left).await?;
        let before = self.present().await?;
        if let Some(made) = made_before(&self.new, &before) {
            self.delete_old().await?;
            return Ok(made);
        }
        let made: Vec<_> = self.new.iter().map(|wanted| self.make(wanted)).collect();
        // Behind them: the server of this answer knows what it was asked to make before.
        let old = self.requests.read_all(&self.old);
        match judge(join_all(made).await, old.await) {
            Ok(made) => {
                let made: Vec<_> = made.into_iter().map(|created| created.path).collect();
                match self.delete_old().await {
                    Ok(()) => Ok(made),
                    Err(refusal) => Err(self.undo(&made, refusal).await),
                }
            }
            Err(failure) => {
                if let Err(refusal) = until_known(|| self.take_back(&before)).await {
                    left.extend(self.named().filter(|path| !before.contains(*path)).cloned());
                    return Err(self.half_done(refusal));
                }
                Err(failure)
            }
        }
    }

    /// Deletes the old nodes, whose place others have taken.
    async fn delete_old(&self) -> Result<(), Failure> {
        until_known(|| self.delete_all(&self.old)).await.map_err(|refusal| self.half_done(refusal))
    }

    /// Deletes what an earlier exchange for the same nodes could not take back.
    async fn clear_left(&self, left: &mut LeftNodes) -> Result<(), Failure> {
        let of_these: Vec<_> = self.named().filter(|path| left.contains(*path)).cloned().collect();
        if !of_these.is_empty() {
            until_known(|| self.delete_all(&of_these)).await.map_err(half_done)?;
            left.retain(|path| !of_these.contains(path));
        }
        Ok(())
    }

    /// Deletes what was made, if all of the old nodes are there since their deletion was refused, and returns the failure to tell: then nothing
    /// has changed. Whoever asks again for nodes that have paths of their own completes the change instead. So does whoever asks again when some
    /// of the old ones are gone.
    async fn undo(&self, made: &[String], refusal: Failure) -> Failure {
        if self.are_named() {
            return refusal;
        }
        match until_known(|| self.requests.read_all(&self.old)).await {
            Ok(old) if old.iter().all(Option::is_some) => {
                // If that is refused as well, they go with the session.
                let _ = until_known(|| self.delete_all(made)).await;
                refusal
            }
            // What may not be looked at is taken for unchanged where new ones would be taken for granted otherwise.
            Err(_) if !self.new.is_empty() => refusal,
            _ => half_done(refusal),
        }
    }

    /// The failure of what was to follow on a change. Whoever asks again for nodes that have paths of their own completes that change, or has it
    /// taken back. Whoever asks for others would find them, and take them for granted while the old ones are there.
    fn half_done(&self, failure: Failure) -> Failure {
        if self.are_named() { half_done(failure) } else { failure }
    }

    /// Whether each of the new nodes has a path of its own.
    fn are_named(&self) -> bool {
        !self.new.is_empty() && self.named().count() == self.new.len()
    }

    /// The paths of the new nodes that are known before they are made.
    fn named(&self) -> impl Iterator<Item = &String> {
        self.new.iter().filter_map(|wanted| if let NewNode::Named(path) = wanted { Some(path) } else { None })
    }

    fn make(&self, wanted: &NewNode) -> Response<'static, Created> {
        let (path, mode) = match wanted {
            NewNode::Named(path) => (path, CreateMode::Ephemeral),
            NewNode::Sequential(path) => (path, CreateMode::EphemeralSequential),
        };
        self.requests.make(path, self.data.clone(), mode, Departure::default())
    }

    /// Deletes what this exchange has made, but not what an earlier one of the same attempt did.
    async fn take_back(&self, before: &HashSet<String>) -> Result<(), Failure> {
        let made: Vec<_> = self.present().await?.into_iter().filter(|path| !before.contains(path)).collect();
        self.delete_all(&made).await
    }

    /// Returns those of the new nodes that are there, of this session.
    async fn present(&self) -> Result<HashSet<String>, Failure> {
        let mut present = HashSet::new();
        // Permits are many of the same name.
        let wanted: BTreeSet<_> = self.new.iter().collect();
        for wanted in wanted {
            match wanted {
                NewNode::Named(path) => {
                    let read = self.requests.read_all(std::slice::from_ref(path)).await?;
                    let own = |node: &Node| node.session == self.requests.session();
                    present.extend(read.into_iter().flatten().filter(own).map(|_| path.clone()));
                }
                NewNode::Sequential(stem) => present.extend(self.numbered(stem).await?),
            }
        }
        Ok(present)
    }

    /// Returns the nodes that have been made of this path and a number.
    async fn numbered(&self, stem: &str) -> Result<Vec<String>, Failure> {
        let (directory, name) = stem.rsplit_once('/').unwrap_or(("", stem));
        let synced = self.requests.sync();
        let listed = self.requests.children_proven(directory, false);
        synced.await?;
        match listed.await {
            Ok(names) => {
                let own = names.into_iter().filter(|other| other.starts_with(name));
                Ok(own.map(|own| format!("{directory}/{own}")).collect())
            }
            Err(failure) if failure.fate == Fate::Missing => Ok(Vec::new()),
            Err(failure) => Err(failure),
        }
    }

    async fn delete_all(&self, paths: &[String]) -> Result<(), Failure> {
        let deleted: Vec<_> = paths.iter().map(|path| self.requests.delete(path)).collect();
        join_all(deleted).await.into_iter().try_for_each(|outcome| outcome.map(drop))
    }
}

/// The paths of the new nodes, if all of them have a path of their own and were there before anything was made.
fn made_before(new: &[NewNode], before: &HashSet<String>) -> Option<Vec<String>> {
    let path = |wanted: &NewNode| match wanted {
        NewNode::Named(path) if before.contains(path) => Some(path.clone()),
        _ => None,
    };
    if new.is_empty() { None } else { new.iter().map(path).collect() }
}

/// The failure of what was to follow on a change: a refusal of that says nothing of what was done before.
fn half_done(failure: Failure) -> Failure {
    match failure.fate {
        Fate::Ended => failure,
        _ => Failure { fate: Fate::Unknown, ..failure },
    }
}

/// The new nodes, if all of them were made and the old ones were there afterwards.
fn judge(
    made: Vec<Result<Created, Failure>>,
    old: Result<Vec<Option<Node>>, Failure>,
) -> Result<Vec<Created>, Failure> {
    let made = made.into_iter().collect::<Result<Vec<_>, _>>().map_err(|mut failure| {
        // It was not there before, and nobody else makes one of its name: whoever asks again looks first what there is.
        if failure.fate == Fate::Exists {
            failure.fate = Fate::Unknown;
        }
        failure
    })?;
    if old?.iter().any(Option::is_none) {
        return Err(Failure { fate: Fate::Missing, source: "a node that was to be exchanged is gone".into() });
    }
    Ok(made)
}

/// Repeats what is safe to repeat until its outcome is known.
async fn until_known<T, F: Future<Output = Result<T, Failure>>>(mut step: impl FnMut() -> F) -> Result<T, Failure> {
    let mut pauses = wait::pauses(Duration::from_millis(20), Duration::from_millis(500));
    loop {
        match step().await {
            // The iterator is endless.
            Err(failure) if failure.fate == Fate::Unknown => sleep(pauses.next().unwrap_or_default()).await,
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use lock_testkit::testing::{PROMPTLY, installed, soon};
    use lock_testkit_servers::zookeeper::{NodeKind, ZooKeeperClient, ZooKeeperServer};

    use super::super::ZookeeperAsync;
    use super::*;
    use crate::client::Connection;

    /// A server with a node for each of two attempts, and a session that has made them.
    async fn two_attempts() -> Option<(ZooKeeperServer, ZooKeeperClient, ZookeeperAsync)> {
        let server = installed(ZooKeeperServer::start_own().await)?;
        let truth = server.client().await.unwrap();
        let connection = soon("a session", PROMPTLY, ZookeeperAsync::to(server.address())).await;
        for path in ["/lock/one", "/lock/two"] {
            truth.create(path, b"", NodeKind::Persistent).await.unwrap();
        }
        Some((server, truth, connection))
    }

    const ONE: GrantId = GrantId::from_bytes([1; 16]);
    const TWO: GrantId = GrantId::from_bytes([2; 16]);

    /// Has an attempt's node changed for another one.
    fn change<'a>(connection: &'a ZookeeperAsync, attempt: GrantId, of: &str) -> Response<'a, Vec<String>> {
        let new = [NewNode::Named(format!("/lock/{of}-changed"))];
        connection.exchange(attempt, &[format!("/lock/{of}")], &new, b"")
    }

    #[tokio::test]
    async fn an_exchange_waits_for_those_of_its_own_attempt_only() {
        let Some((_server, truth, connection)) = two_attempts().await else { return };
        let turn = connection.exchanges.turn_of(ONE).clone().lock_owned().await;
        let mut waiting = change(&connection, ONE, "one");
        assert!((&mut waiting).now_or_never().is_none() && connection.exchanged(ONE).now_or_never().is_none());
        assert_eq!(soon("another's", PROMPTLY, change(&connection, TWO, "two")).await.unwrap(), ["/lock/two-changed"]);
        soon("another's search", PROMPTLY, connection.exchanged(TWO)).await;
        drop(turn);
        assert_eq!(soon("its turn", PROMPTLY, waiting).await.unwrap(), ["/lock/one-changed"]);
        let left = truth.children("/lock").await.unwrap().unwrap();
        assert!(!left.iter().any(|name| name == "one" || name == "two"), "{left:?}");
    }

    #[tokio::test]
    async fn an_exchange_that_is_given_up_before_its_turn_sends_nothing() {
        let Some((_server, truth, connection)) = two_attempts().await else { return };
        let turn = connection.exchanges.turn_of(ONE).clone().lock_owned().await;
        drop(change(&connection, ONE, "one"));
        let kept = change(&connection, ONE, "two");
        drop(turn);
        assert_eq!(soon("the one behind", PROMPTLY, kept).await.unwrap(), ["/lock/two-changed"]);
        soon("a search", PROMPTLY, connection.exchanged(ONE)).await;
        let is_there = async |name: &str| truth.exists(&format!("/lock/{name}")).await.unwrap().is_some();
        assert!(is_there("one").await && !is_there("one-changed").await, "it was carried out");
    }

    fn made(path: &str) -> Result<Created, Failure> {
        Ok(Created { path: path.to_owned(), czxid: 1 })
    }

    fn failure<T>(fate: Fate) -> Result<T, Failure> {
        Err(Failure { fate, source: "a test's".into() })
    }

    fn there() -> Option<Node> {
        Some(Node { data: Vec::new(), czxid: 1, made_at: 0, changed_at: 0, version: 0, session: 1 })
    }

    #[test]
    fn all_of_it_or_nothing() {
        assert_eq!(judge(vec![made("/a"), made("/b")], Ok(vec![there()])).unwrap().len(), 2);
        let fate = |made, old| judge(made, old).unwrap_err().fate;
        assert_eq!(fate(vec![made("/a")], Ok(vec![there(), None])), Fate::Missing);
        assert_eq!(fate(vec![made("/a"), failure(Fate::Unknown)], Ok(vec![there()])), Fate::Unknown);
        assert_eq!(fate(vec![made("/a")], failure(Fate::Unknown)), Fate::Unknown);
        assert_eq!(fate(vec![failure(Fate::Exists)], Ok(vec![there()])), Fate::Unknown, "what is there is taken back");
    }

    #[test]
    fn what_was_there_before_is_that_of_an_exchange_that_was_carried_out_if_it_is_all() {
        let (named, before) =
            (|path: &str| NewNode::Named(path.to_owned()), HashSet::from(["/a".to_owned(), "/b1".to_owned()]));
        assert_eq!(made_before(&[named("/a")], &before), Some(vec!["/a".to_owned()]));
        assert_eq!(made_before(&[named("/a"), named("/c")], &before), None);
        let sequential = NewNode::Sequential("/b".to_owned());
        assert_eq!(made_before(&[sequential], &before), None, "it may be of another exchange for the same grant");
        assert_eq!(made_before(&[], &before), None, "what only goes is looked for");
    }

    #[test]
    fn a_refusal_behind_a_change_is_no_refusal_of_all() {
        let fate = |fate| half_done(Failure { fate, source: "a test's".into() }).fate;
        assert_eq!(
            [fate(Fate::Denied), fate(Fate::Refused), fate(Fate::Ended)],
            [Fate::Unknown, Fate::Unknown, Fate::Ended]
        );
    }
}
