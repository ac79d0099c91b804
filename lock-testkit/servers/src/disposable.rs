//! Servers that a case may have for itself, and what can be done to them.

use async_trait::async_trait;
use lock_core::LockName;
use lock_testkit::DisposableServer;
use lock_testkit::HarnessError;
use lock_testkit::faults::{Data, Proof};

use crate::faults::{ProcessFault, ServerProcess, StoreFault};
use crate::memcached::MemcachedServer;
use crate::redis::{ClockedRedis, ClusterDeployment, RedisServer, SentinelDeployment};
use crate::zookeeper::{ZooKeeperEnsemble, ZooKeeperServer};

#[async_trait]
impl DisposableServer for SentinelDeployment {
    fn url(&self) -> &str {
        Self::url(self)
    }

    async fn fail_over(&self, _name: &LockName) -> Result<Proof, HarnessError> {
        let old = self.master().await?;
        old.kill()?;
        let new = self.until_another_master(old).await?;
        old.restart().await?;
        self.until_ready().await?;
        Ok(taken_over(new.address(), old.address()))
    }
}

#[async_trait]
impl DisposableServer for ClusterDeployment {
    fn url(&self) -> &str {
        Self::url(self)
    }

    /// The lock's keys have to carry its name as their hash tag.
    async fn fail_over(&self, name: &LockName) -> Result<Proof, HarnessError> {
        let slot = self.slot_of(&format!("{{{name}}}")).await?;
        let old = self.master_of(slot).await?;
        old.kill()?;
        let new = self.until_another_master(slot, old).await?;
        old.restart().await?;
        self.until_ready().await?;
        Ok(taken_over(new.address(), old.address()))
    }
}

#[async_trait]
impl DisposableServer for ZooKeeperEnsemble {
    fn url(&self) -> &str {
        Self::url(self)
    }

    async fn fail_over(&self, _name: &LockName) -> Result<Proof, HarnessError> {
        let old = self.leader().await?;
        old.kill()?;
        let new = self.until_another_leader(old).await?;
        old.restart().await?;
        self.until_ready().await?;
        Ok(taken_over(new.address(), old.address()))
    }
}

fn taken_over(new: &str, old: &str) -> Proof {
    if new == old { Proof::default() } else { Proof::of(format!("{new} has taken over from {old}, which was killed")) }
}

/// Kills the server's process, and starts it again.
fn kill_and_start(server: ServerProcess<'_>, data: Data) -> Result<Proof, HarnessError> {
    // Without proof the case is unknown.
    Ok(ProcessFault::Kill { data }.inject(server)?.heal().unwrap_or_default())
}

#[async_trait]
impl DisposableServer for RedisServer {
    fn url(&self) -> &str {
        Self::url(self)
    }

    async fn restart(&self, data: Data) -> Result<Proof, HarnessError> {
        let proof = kill_and_start(self.into(), data)?;
        self.until_ready().await?;
        Ok(proof)
    }

    async fn flush(&self) -> Result<Proof, HarnessError> {
        Ok(StoreFault::Flush.inject(self).await?.proof())
    }
}

#[async_trait]
impl DisposableServer for ZooKeeperServer {
    fn url(&self) -> &str {
        Self::url(self)
    }

    async fn restart(&self, data: Data) -> Result<Proof, HarnessError> {
        let proof = kill_and_start(self.into(), data)?;
        self.until_ready().await?;
        Ok(proof)
    }
}

#[async_trait]
impl DisposableServer for MemcachedServer {
    fn url(&self) -> &str {
        Self::url(self)
    }

    /// Starts the server again. A memcached keeps nothing, whatever it is to find.
    async fn restart(&self, data: Data) -> Result<Proof, HarnessError> {
        let proof = kill_and_start(self.into(), data)?;
        self.until_ready().await?;
        Ok(proof)
    }

    async fn flush(&self) -> Result<Proof, HarnessError> {
        Ok(StoreFault::Flush.inject(self).await?.proof())
    }
}

#[async_trait]
impl DisposableServer for ClockedRedis {
    fn url(&self) -> &str {
        Self::url(self)
    }

    async fn step_clock(&self, ahead_ms: i64) -> Result<Proof, HarnessError> {
        Self::step_clock(self, ahead_ms).await
    }
}
