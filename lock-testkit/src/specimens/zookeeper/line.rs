//! The recipes: nodes in line below the lock's directory.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::Attempt;
use lock_core::{GrantId, Guarantees, Support};

use super::Recipe;
use super::session::Session;
use crate::harness::Broken;
use crate::servers::zookeeper::NodeKind;
use crate::specimens::backend::Steps;

/// A recipe's client.
#[derive(Debug)]
pub(super) struct Line {
    recipe: Recipe,
    /// How many clients there were before.
    machine: u32,
    session: Session,
    namespace: String,
    /// Whom each attempt found before it when it looked ([`Recipe::LookedUpOnce`]).
    before: Mutex<HashMap<GrantId, String>>,
}

impl Line {
    pub(super) fn new(recipe: Recipe, machine: u32, session: Session, namespace: &str) -> Self {
        let session = match recipe {
            Recipe::Hasty => session.hasty(), // the flaw
            _ => session,
        };
        Self { recipe, machine, session, namespace: namespace.to_owned(), before: Mutex::default() }
    }

    fn directory(&self, attempt: &Attempt) -> String {
        format!("/{}/{}", self.namespace, attempt.name.as_str().replace('/', "%2F"))
    }

    fn path(&self, attempt: &Attempt, node: &str) -> String {
        format!("{}/{node}", self.directory(attempt))
    }

    /// What a node is called before its number.
    fn stem(&self, attempt: &Attempt) -> String {
        match self.recipe {
            // Whose node it is, only the answer tells: the flaw.
            Recipe::Nameless => "lock-".to_owned(),
            // As names of hosts do, this one decides the order; here, the later a client came the earlier it is.
            Recipe::SortedByName => format!("{:04}-{}-", 9999 - self.machine % 10_000, attempt.id),
            _ => format!("{}-", attempt.id),
        }
    }

    /// Everybody in line, in order.
    async fn everybody(&self, attempt: &Attempt) -> Result<Vec<String>, Broken> {
        let mut nodes = self.session.children(self.directory(attempt)).await?;
        match self.recipe {
            Recipe::SortedByName => nodes.sort_unstable(), // by whole names: the flaw
            _ => nodes.sort_by_key(|node| number(node)),
        }
        Ok(nodes)
    }

    /// Whether a node is this attempt's.
    fn is_mine(&self, attempt: &Attempt, node: &str) -> bool {
        match self.recipe {
            Recipe::Nameless => number(node) == noted(attempt),
            _ => node.contains(&attempt.id.to_string()),
        }
    }

    /// This attempt's node, if it is there.
    async fn mine(&self, attempt: &Attempt) -> Result<Option<String>, Broken> {
        Ok(self.everybody(attempt).await?.into_iter().find(|node| self.is_mine(attempt, node)))
    }

    async fn stand_in_line(&self, attempt: &Attempt) -> Result<(), Broken> {
        let kind = match self.recipe {
            Recipe::Persistent => NodeKind::PersistentSequential, // nobody's when its maker is dead: the flaw
            _ => NodeKind::EphemeralSequential,
        };
        let made = self.session.create(self.path(attempt, &self.stem(attempt)), kind).await?;
        let number = made.as_deref().and_then(number).ok_or_else(|| Broken::new("a node without a number"))?;
        // Numbers begin with 0, which is what a note says before there is any.
        attempt.set_note(number + 1);
        Ok(())
    }

    /// Whether this attempt, which stands in line, is let in.
    async fn is_let_in(&self, attempt: &Attempt) -> Result<bool, Broken> {
        let line = self.everybody(attempt).await?;
        match self.recipe {
            // Whoever is not before me does not matter, me included: the flaw.
            Recipe::Placeless => Ok(!line.iter().any(|node| number(node) < noted(attempt))),
            Recipe::LookedUpOnce => Ok(self.predecessor_is_gone(attempt, &line)),
            _ => Ok(line.first().is_some_and(|first| self.is_mine(attempt, first))),
        }
    }

    fn predecessor_is_gone(&self, attempt: &Attempt, line: &[String]) -> bool {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        // Once; whoever stands before that one is never looked for: the flaw.
        let found = before.entry(attempt.id).or_insert_with(|| {
            line.iter().take_while(|node| !self.is_mine(attempt, node)).last().cloned().unwrap_or_default()
        });
        !line.contains(found)
    }

    /// Takes the one node that a lock has.
    async fn take_the_node(&self, attempt: &Attempt) -> Result<bool, Broken> {
        Ok(self.session.create(self.path(attempt, THE_NODE), NodeKind::Ephemeral).await?.is_some())
    }
}

/// What the one node of a lock is called.
const THE_NODE: &str = "lock";

#[async_trait]
impl Steps for Line {
    /// As far as the sound one goes.
    fn guarantees(&self) -> Guarantees {
        let mut guarantees = Guarantees::none();
        guarantees.exclusion_across_failover = Support::Yes;
        guarantees
    }

    async fn take(&self, attempt: &Attempt, waits: bool) -> Result<bool, Broken> {
        if self.recipe == Recipe::PlainDelete {
            return self.take_the_node(attempt).await;
        }
        let stands = match self.recipe {
            Recipe::Placeless | Recipe::Nameless => attempt.note() > 0,
            _ => self.mine(attempt).await?.is_some(),
        };
        if !stands {
            self.stand_in_line(attempt).await?;
        }
        let is_let_in = self.is_let_in(attempt).await?;
        if !is_let_in && !waits {
            self.give_back(attempt).await?;
        }
        Ok(is_let_in)
    }

    async fn give_back(&self, attempt: &Attempt) -> Result<bool, Broken> {
        if self.recipe == Recipe::PlainDelete {
            // Whoever's it is by now: the flaw.
            return self.session.delete(self.path(attempt, THE_NODE)).await;
        }
        match self.mine(attempt).await? {
            Some(node) => self.session.delete(self.path(attempt, &node)).await,
            None => Ok(false),
        }
    }

    async fn extend(&self, attempt: &Attempt, _ttl: Duration) -> Result<bool, Broken> {
        match self.recipe {
            Recipe::Unasked => Ok(true), // the flaw
            Recipe::PlainDelete => {
                Ok(self.session.children(self.directory(attempt)).await?.iter().any(|node| node == THE_NODE))
            }
            // That question has kept the session alive, too.
            _ => Ok(self.mine(attempt).await?.is_some()),
        }
    }

    async fn abandon(&self, attempt: &Attempt) -> Result<(), Broken> {
        match self.recipe {
            Recipe::PlainDelete => Ok(()), // whose node it is, nobody can say; it ends with a session
            _ => self.give_back(attempt).await.map(drop),
        }
    }
}

/// The number at the end of a node's name.
fn number(node: &str) -> Option<u64> {
    node.get(node.len().checked_sub(10)?..)?.parse().ok()
}

/// The number of the node that this attempt has made, if it was told.
fn noted(attempt: &Attempt) -> Option<u64> {
    attempt.note().checked_sub(1)
}
