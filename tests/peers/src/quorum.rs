//! Three independent Redis servers: rslock, ours, and redsync.

use std::time::Duration;

use bench_support::Outcome;
use lock_redis::{QuorumConfig, QuorumLocks};
use lock_testkit_servers::redis::RedisServer;

use crate::Field;
use crate::contender::Contender;
use crate::foreign::Foreign;
use crate::redis::rslock;
use crate::{ours, processes};

pub(crate) const SERVER: &str = "quorum";

pub(crate) async fn field() -> Outcome<Field> {
    let servers = [RedisServer::start_own().await?, RedisServer::start_own().await?, RedisServer::start_own().await?];
    let urls = servers.each_ref().map(|server| server.url().to_owned());
    let mut contenders = processes::also(SERVER, &urls, local(urls.to_vec()).await?);
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    contenders.extend(Foreign::start("PEER_REDSYNC", &urls, "redsync 4.18.1", false, Duration::from_secs(1)).await?);
    Ok(Field { server: Box::new(servers), title: "On three independent Redis servers", contenders })
}

/// The contenders of this program.
pub(crate) async fn local(urls: Vec<String>) -> Outcome<Vec<Box<dyn Contender>>> {
    let config = QuorumConfig::new(urls.clone()).with_prefix("peers").with_young_servers(true);
    let locks = QuorumLocks::connect_with(config).await?;
    Ok(vec![rslock(urls), ours::mutex("lock-redis quorum, mutex", &locks.into())])
}
