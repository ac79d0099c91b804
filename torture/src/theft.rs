//! The theft of a ZooKeeper session: somebody takes it over and closes it behind its client's back.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lock_testkit::HarnessError;
use lock_testkit_checker::history::event::Theft;
use lock_testkit_checker::history::now;
use lock_testkit_servers::zookeeper::{Session, ZooKeeperClient, ZooKeeperServer};

use crate::faults::Fault;
use crate::line::{first_in_line, grant};
use crate::worker::COUNTERS;

/// A session's client takes it back at once, so that a thief may have to try again.
const PATIENCE: Duration = Duration::from_secs(2);

/// The session of whoever has the mutex before the counters is stolen.
pub(crate) struct Stolen {
    server: Arc<ZooKeeperServer>,
    /// Of the run, once it is known.
    namespace: Arc<OnceLock<String>>,
    loot: Option<Loot>,
}

/// The grants that the theft of a session takes from its client.
struct Loot {
    session: Session,
    after: u64,
    grants: BTreeSet<String>,
}

impl Stolen {
    pub(crate) fn of(server: Arc<ZooKeeperServer>, namespace: Arc<OnceLock<String>>) -> Self {
        Self { server, namespace, loot: None }
    }

    /// The session that has the mutex, as soon as there is one.
    async fn victim(&self) -> Result<Option<Session>, HarnessError> {
        let Some(namespace) = self.namespace.get() else { return Ok(None) };
        let (eyes, began, mut victim) = (self.server.client().await?, Instant::now(), None);
        while victim.is_none() && began.elapsed() < PATIENCE {
            let Some(first) = first_in_line(&eyes, namespace, COUNTERS).await? else { continue };
            let path = format!("/{namespace}/mutex/{COUNTERS}/{first}");
            victim = eyes.exists(&path).await?.map(|stat| Session::of(stat.ephemeral_owner));
        }
        eyes.close().await?;
        Ok(victim)
    }
}

impl Loot {
    /// Takes the session over, looks at what it has, which nobody can change meanwhile, and closes it.
    async fn take(&mut self, url: &str) -> Result<(), HarnessError> {
        let taken = ZooKeeperClient::take_over(url, &self.session).await?;
        let nodes = taken.ephemerals().await?;
        self.grants.extend(nodes.iter().filter_map(|path| grant(path.rsplit('/').next()?)));
        taken.close().await
    }
}

#[async_trait]
impl Fault for Stolen {
    fn name(&self) -> &'static str {
        "steal-session"
    }

    fn theft(&self) -> Option<Theft> {
        let Loot { session, after, grants } = self.loot.as_ref()?;
        let grants = grants.iter().map(|grant| grant.as_str().into()).collect();
        Some(Theft { session: format!("{:#x}", session.id()).into(), grants, after: *after })
    }

    async fn begin(&mut self) -> Result<Option<String>, HarnessError> {
        let Some(session) = self.victim().await? else { return Ok(None) };
        let (proof, began) = (format!("the server has closed the session {:#x}", session.id()), Instant::now());
        let loot = self.loot.insert(Loot { session, after: now(), grants: BTreeSet::new() });
        while began.elapsed() < PATIENCE {
            match loot.take(self.server.url()).await {
                // The answer to an earlier try was lost.
                Err(refused) if !refused.to_string().contains("SessionExpired") => {}
                _ => return Ok(Some(proof)),
            }
        }
        Ok(None)
    }

    async fn heal(&mut self) -> Result<(), HarnessError> {
        Ok(())
    }
}
