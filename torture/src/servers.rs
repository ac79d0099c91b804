//! Faults of a server, whatever it speaks: it stands still, or is killed and started again.

use std::sync::Arc;

use async_trait::async_trait;
use lock_testkit::HarnessError;
use lock_testkit_servers::memcached::MemcachedServer;
use lock_testkit_servers::redis::RedisServer;
use lock_testkit_servers::zookeeper::ZooKeeperServer;

use crate::faults::Fault;

/// The process of a server that this run has started.
#[async_trait]
pub(crate) trait Process: Send + Sync + 'static {
    fn pid(&self) -> Option<u32>;
    fn is_running(&self) -> bool;
    fn stop(&self) -> Result<(), HarnessError>;
    fn cont(&self) -> Result<(), HarnessError>;
    fn kill(&self) -> Result<(), HarnessError>;
    /// Starts it again, with what it had written, and waits until it answers.
    async fn restart(&self) -> Result<(), HarnessError>;
}

macro_rules! processes {
    ($($server:ident)+) => {
        $(#[async_trait]
        impl Process for $server {
            fn pid(&self) -> Option<u32> {
                $server::pid(self)
            }

            fn is_running(&self) -> bool {
                $server::is_running(self)
            }

            fn stop(&self) -> Result<(), HarnessError> {
                $server::stop(self)
            }

            fn cont(&self) -> Result<(), HarnessError> {
                $server::cont(self)
            }

            fn kill(&self) -> Result<(), HarnessError> {
                $server::kill(self)
            }

            async fn restart(&self) -> Result<(), HarnessError> {
                $server::restart(self).await
            }
        })+
    };
}

processes! { RedisServer ZooKeeperServer MemcachedServer }

/// Stands still, and its clock with it.
pub(crate) struct Frozen<S>(pub(crate) Arc<S>);

#[async_trait]
impl<S: Process> Fault for Frozen<S> {
    fn name(&self) -> &'static str {
        "freeze-server"
    }

    async fn begin(&mut self) -> Result<Option<String>, HarnessError> {
        self.0.stop()?;
        Ok((!self.0.is_running()).then(|| format!("process {} stands still", self.0.pid().unwrap_or_default())))
    }

    async fn heal(&mut self) -> Result<(), HarnessError> {
        self.0.cont()
    }
}

/// Killed, and started again with what it keeps: of memcached, nothing.
pub(crate) struct Restarted<S>(pub(crate) Arc<S>);

#[async_trait]
impl<S: Process> Fault for Restarted<S> {
    fn name(&self) -> &'static str {
        "restart-server"
    }

    async fn begin(&mut self) -> Result<Option<String>, HarnessError> {
        let before = self.0.pid().unwrap_or_default();
        self.0.kill()?;
        Ok((!self.0.is_running()).then(|| format!("process {before} was killed")))
    }

    async fn heal(&mut self) -> Result<(), HarnessError> {
        self.0.restart().await
    }
}
