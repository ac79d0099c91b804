//! Nodes in the place of others, without a transaction. The new ones are made first, so that at no instant less is held than
//! is believed; if the old ones are there after that, they were there all the while, and are deleted. Otherwise, or if an
//! answer is lost, the new ones are taken back. Whatever began runs to its end, whether somebody waits for it or not, one
//! exchange after another.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lock_core::driver::wait;
use tokio::sync::{Mutex, oneshot};
use tokio::time::sleep;
use zookeeper_async::CreateMode;

use super::requests::Requests;
use super::{Created, Failure, Fate, NewNode, Node, Response};

struct Exchange {
    requests: Arc<Requests>,
    old: Vec<String>,
    new: Vec<NewNode>,
    data: Vec<u8>,
}

/// Starts an exchange.
pub(super) fn begin(
    requests: &Arc<Requests>,
    one_by_one: &Arc<Mutex<()>>,
    old: &[String],
    new: &[NewNode],
    data: &[u8],
) -> Response<'static, Vec<String>> {
    let exchange = Exchange { requests: requests.clone(), old: old.to_vec(), new: new.to_vec(), data: data.to_vec() };
    let (answer, answered) = oneshot::channel();
    // Its turn is asked for now: whoever waits for those before it waits for this one, too.
    let mut turn = Box::pin(one_by_one.clone().lock_owned());
    let taken = (&mut turn).now_or_never();
    requests.runtime.spawn(async move {
        let _turn = match taken {
            Some(turn) => turn,
            None => turn.await,
        };
        let _ = answer.send(exchange.run().await);
    });
    let gone = |_| Err(Failure { fate: Fate::Ended, source: "the client is gone".into() });
    Box::pin(async move { answered.await.unwrap_or_else(gone) })
}

impl Exchange {
    async fn run(self) -> Result<Vec<String>, Failure> {
        let before = self.present().await?;
        let made: Vec<_> = self.new.iter().map(|wanted| self.make(wanted)).collect();
        // Behind them: the server of this answer knows what it was asked to make before.
        let old = self.requests.read_all(&self.old);
        match judge(join_all(made).await, old.await) {
            Ok(made) => {
                until_known(|| self.delete_all(&self.old)).await?;
                Ok(made.into_iter().map(|created| created.path).collect())
            }
            Err(failure) => {
                until_known(|| self.take_back(&before)).await?;
                Err(failure)
            }
        }
    }

    fn make(&self, wanted: &NewNode) -> Response<'static, Created> {
        let (path, mode) = match wanted {
            NewNode::Named(path) => (path, CreateMode::Ephemeral),
            NewNode::Sequential(path) => (path, CreateMode::EphemeralSequential),
        };
        self.requests.make(path, self.data.clone(), mode)
    }

    /// Deletes what this exchange has made, but not what an earlier one of the same attempt did.
    async fn take_back(&self, before: &HashSet<String>) -> Result<(), Failure> {
        let made: Vec<_> = self.present().await?.into_iter().filter(|path| !before.contains(path)).collect();
        self.delete_all(&made).await
    }

    /// Returns those of the new nodes that are there.
    async fn present(&self) -> Result<HashSet<String>, Failure> {
        let mut present = HashSet::new();
        // Permits are many of the same name.
        let wanted: BTreeSet<_> = self.new.iter().collect();
        for wanted in wanted {
            match wanted {
                NewNode::Named(path) => {
                    let read = self.requests.read_all(std::slice::from_ref(path)).await?;
                    present.extend(read.into_iter().flatten().map(|_| path.clone()));
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

/// The new nodes, if all of them were made and the old ones were there afterwards.
fn judge(
    made: Vec<Result<Created, Failure>>,
    old: Result<Vec<Option<Node>>, Failure>,
) -> Result<Vec<Created>, Failure> {
    let made = made.into_iter().collect::<Result<Vec<_>, _>>().map_err(|mut failure| {
        // Made by an earlier exchange of which an answer was lost: whoever asks again looks first what there is.
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
async fn until_known<F: Future<Output = Result<(), Failure>>>(mut step: impl FnMut() -> F) -> Result<(), Failure> {
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
    use super::*;

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
}
