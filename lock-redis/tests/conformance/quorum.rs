//! The conformance suite on a quorum of five independent servers, which it starts itself.

mod foreign;
mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_core::{Error, Locks};
use lock_redis::{QuorumConfig, QuorumLocks};
use lock_testkit::Missing;
use lock_testkit_servers::Deployment;
use lock_testkit_servers::redis::IndependentServers;

use harness::{Arrangement, Redis};

fn main() -> ExitCode {
    lock_testkit::main::<Redis<Five>>()
}

struct Five {
    urls: String,
    _servers: IndependentServers,
}

#[async_trait]
impl Deployment for Five {
    const NAME: &'static str = "redis-quorum";

    async fn start() -> Result<Self, Missing> {
        let servers = IndependentServers::start(5).await?;
        Ok(Self { urls: servers.urls().join(" "), _servers: servers })
    }

    fn url(&self) -> &str {
        &self.urls
    }
}

#[async_trait]
impl Arrangement for Five {
    async fn connect(urls: &str, namespace: &str) -> Result<Locks, Error> {
        // The servers have only just been started, and none of them restarts.
        let config = QuorumConfig::new(urls.split(' ')).with_prefix(namespace).with_young_servers(true);
        Ok(QuorumLocks::connect_with(config).await?.into())
    }
}
