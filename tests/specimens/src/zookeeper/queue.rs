//! The recipes: nodes that queue below the lock's directory.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::driver::{Attempt, Kind, Operator};
use lock_core::{GrantId, Guarantees, LockName, Support};
use lock_testkit::HarnessError;
use lock_testkit_servers::zookeeper::{Change, NodeKind};

use super::Recipe;
use super::session::Session;
use crate::backend::{Look, Steps};

/// A recipe's client.
#[derive(Debug)]
pub(super) struct Queue {
    recipe: Recipe,
    /// The number of clients that there were before.
    machine: u32,
    pub(super) session: Session,
    namespace: String,
    /// The node that each attempt found before it when it looked ([`Recipe::LookedUpOnce`]).
    before: Mutex<HashMap<GrantId, Option<String>>>,
    /// The number of the node that each attempt has made.
    numbers: Mutex<HashMap<GrantId, u64>>,
}

impl Queue {
    pub(super) fn new(recipe: Recipe, machine: u32, session: Session, namespace: &str) -> Self {
        let session = match recipe {
            Recipe::Hasty => session.hasty(), // the flaw
            _ => session,
        };
        Self {
            recipe,
            machine,
            session,
            namespace: namespace.to_owned(),
            before: Mutex::default(),
            numbers: Mutex::default(),
        }
    }

    fn directory(&self, name: &LockName, kind: Kind) -> String {
        format!("/{}/{}:{}", self.namespace, kind.space(), name.as_str().replace('/', "%2F"))
    }

    pub(super) fn path(&self, name: &LockName, kind: Kind, node: &str) -> String {
        format!("{}/{node}", self.directory(name, kind))
    }

    /// The path of this attempt's node of such a name.
    fn own_path(&self, attempt: &Attempt, node: &str) -> String {
        self.path(&attempt.name, attempt.kind, node)
    }

    /// The beginning of a node's name, before its number.
    fn stem(&self, attempt: &Attempt) -> String {
        match self.recipe {
            // Whose node it is, only the answer tells: the flaw.
            Recipe::Nameless => "lock-".to_owned(),
            // As names of hosts do, this one decides the order; here, the later a client came the earlier it is.
            Recipe::SortedByName => format!("{:04}-{}-", 9999 - self.machine % 10_000, attempt.id),
            _ => format!("{}-{}-", attempt.id, attempt.kind.name()),
        }
    }

    /// Everybody in the queue, in order.
    pub(super) async fn everybody(&self, name: &LockName, kind: Kind) -> Result<Vec<String>, HarnessError> {
        Ok(self.in_order(self.session.children(self.directory(name, kind)).await?))
    }

    fn in_order(&self, mut nodes: Vec<String>) -> Vec<String> {
        match self.recipe {
            Recipe::SortedByName => nodes.sort_unstable(), // by whole names: the flaw
            _ => nodes.sort_by_key(|node| number(node)),
        }
        nodes
    }

    /// Whether a node is this attempt's.
    fn is_mine(&self, attempt: &Attempt, node: &str) -> bool {
        match self.recipe {
            Recipe::Nameless => number(node) == self.own_number(attempt),
            _ => node.contains(&attempt.id.to_string()),
        }
    }

    /// This attempt's node, if it is there.
    async fn mine(&self, attempt: &Attempt) -> Result<Option<String>, HarnessError> {
        let queue = self.everybody(&attempt.name, attempt.kind).await?;
        Ok(queue.into_iter().find(|node| self.is_mine(attempt, node)))
    }

    /// Sees to it that this attempt stands in the queue, and looks who else does.
    async fn stand(&self, attempt: &Attempt) -> Result<Standing, HarnessError> {
        loop {
            let directory = self.directory(&attempt.name, attempt.kind);
            let (nodes, change) = match self.recipe {
                Recipe::Herd => self.session.watch_children(directory).await?, // everybody watches everybody: the flaw
                _ => (self.session.children(directory).await?, None),
            };
            let queue = self.in_order(nodes);
            match self.place(attempt, &queue) {
                Some(place) => return Ok(Standing { queue, place, change }),
                None => self.stand_in_line(attempt).await?,
            }
        }
    }

    /// The number of the node that this attempt has made, if it was told.
    fn own_number(&self, attempt: &Attempt) -> Option<u64> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).get(&attempt.id).copied()
    }

    /// Returns how many stand before this attempt, if it stands in the queue.
    fn place(&self, attempt: &Attempt, queue: &[String]) -> Option<usize> {
        match self.recipe {
            // Once it stood there, it does not look for itself: the flaw.
            Recipe::Placeless => {
                let mine = self.own_number(attempt)?;
                Some(queue.iter().filter(|node| number(node).is_some_and(|number| number < mine)).count())
            }
            _ => queue.iter().position(|node| self.is_mine(attempt, node)),
        }
    }

    async fn stand_in_line(&self, attempt: &Attempt) -> Result<(), HarnessError> {
        let kind = match self.recipe {
            Recipe::Persistent => NodeKind::PersistentSequential, // nobody's when its maker is dead: the flaw
            _ => NodeKind::EphemeralSequential,
        };
        let made = self.session.create(self.own_path(attempt, &self.stem(attempt)), kind).await?;
        let number = made.as_deref().and_then(number).ok_or_else(|| HarnessError::new("a node without a number"))?;
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).insert(attempt.id, number);
        Ok(())
    }

    /// Returns the node that this attempt waits for; nothing if it is let in.
    fn obstacle(&self, attempt: &Attempt, Standing { queue, place, .. }: &Standing) -> Option<String> {
        let before = queue.get(..*place).unwrap_or_default();
        match (self.recipe, attempt.kind) {
            (Recipe::LookedUpOnce, _) => self.predecessor(attempt, before).filter(|found| queue.contains(found)),
            // Those behind it, too: the flaw.
            (Recipe::LaterWriters, Kind::Read) => queue.iter().rfind(|node| !is_shared(node)).cloned(),
            (_, Kind::Read) => before.iter().rfind(|node| !is_shared(node)).cloned(),
            _ => before.last().cloned(),
        }
    }

    fn predecessor(&self, attempt: &Attempt, before: &[String]) -> Option<String> {
        let mut found = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        // Once; whoever stands before that one is never looked for: the flaw.
        found.entry(attempt.id).or_insert_with(|| before.last().cloned()).clone()
    }

    /// Takes the one node that a lock has.
    async fn take_the_node(&self, attempt: &Attempt) -> Result<bool, HarnessError> {
        Ok(self.session.create(self.own_path(attempt, THE_NODE), NodeKind::Ephemeral).await?.is_some())
    }
}

/// An attempt's place in the queue.
struct Standing {
    queue: Vec<String>,
    /// The number of nodes before it.
    place: usize,
    /// The watch for a change of the queue, if that was asked for.
    change: Option<Change>,
}

/// The name of the one node of a lock.
const THE_NODE: &str = "lock";

#[async_trait]
impl Steps for Queue {
    /// As far as the sound one goes; without a queue of nodes that tell whose they are, there is none to look at.
    fn guarantees(&self) -> Guarantees {
        let mut guarantees = Guarantees::none();
        guarantees.exclusion_across_failover = Support::Yes;
        if !matches!(self.recipe, Recipe::PlainDelete | Recipe::SortedByName | Recipe::Nameless) {
            (guarantees.fifo, guarantees.push, guarantees.inspect) = (Support::Yes, Support::Yes, Support::Yes);
        }
        guarantees
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }

    async fn take(&self, attempt: &Attempt) -> Result<bool, HarnessError> {
        if self.recipe == Recipe::PlainDelete {
            return self.take_the_node(attempt).await;
        }
        let standing = self.stand(attempt).await?;
        let is_let_in = self.obstacle(attempt, &standing).is_none();
        if !is_let_in {
            self.release(attempt).await?;
        }
        Ok(is_let_in)
    }

    async fn look(&self, attempt: &Attempt) -> Result<Look, HarnessError> {
        if self.recipe == Recipe::PlainDelete {
            return Ok(if self.take_the_node(attempt).await? { Look::Granted } else { Look::NotYet(None) });
        }
        loop {
            let standing = self.stand(attempt).await?;
            let Some(obstacle) = self.obstacle(attempt, &standing) else { return Ok(Look::Granted) };
            let change = match standing.change {
                Some(change) => Some(change),
                None => self.session.watch(self.own_path(attempt, &obstacle)).await?,
            };
            // Without a change to wait for, the obstacle is gone.
            if let Some(change) = change {
                return Ok(Look::NotYet(Some(Box::pin(self.session.clone().until(change)))));
            }
        }
    }

    async fn release(&self, attempt: &Attempt) -> Result<bool, HarnessError> {
        if self.recipe == Recipe::PlainDelete {
            // Whoever's it is by now: the flaw.
            return self.session.delete(self.own_path(attempt, THE_NODE)).await;
        }
        match self.mine(attempt).await? {
            Some(node) => self.session.delete(self.own_path(attempt, &node)).await,
            None => Ok(false),
        }
    }

    async fn extend(&self, attempt: &Attempt, _ttl: Duration) -> Result<bool, HarnessError> {
        match self.recipe {
            Recipe::Unasked => Ok(true), // the flaw
            Recipe::PlainDelete => {
                let nodes = self.everybody(&attempt.name, attempt.kind).await?;
                Ok(nodes.iter().any(|node| node == THE_NODE))
            }
            // That question has kept the session alive, too.
            _ => Ok(self.mine(attempt).await?.is_some()),
        }
    }

    async fn abandon(&self, attempt: &Attempt) -> Result<(), HarnessError> {
        match self.recipe {
            Recipe::PlainDelete => Ok(()), // whose node it is, nobody can say; it ends with a session
            _ => self.release(attempt).await.map(drop),
        }
    }
}

/// Whether a node is a reader's.
pub(super) fn is_shared(node: &str) -> bool {
    node.contains("-read-")
}

/// Returns the attempt that owns a node, if its name tells.
pub(super) fn grant(node: &str) -> Option<GrantId> {
    node.split('-').next()?.parse().ok()
}

/// The number at the end of a node's name.
fn number(node: &str) -> Option<u64> {
    node.get(node.len().checked_sub(10)?..)?.parse().ok()
}
