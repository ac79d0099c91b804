//! Redis in every arrangement, and a quorum.

use std::time::Duration;

use lock_core::{ErrorKind, Locks};
use lock_redis::quorum::{QuorumConfig, QuorumLocks};
use lock_redis::{RedisConfig, RedisLocks, Tls};
use lock_testkit::testing::{PROMPTLY, connected, eventually, installed};
use lock_testkit_servers::redis::{ClusterDeployment, RedisOptions, RedisServer, SentinelDeployment};
use lock_testkit_servers::{Certificates, ClientCertificates};

use crate::heap::{failed, shown};
use crate::{PASSWORD, POOR, USER, hasty, use_all};

fn options() -> RedisOptions {
    RedisOptions::new().with_user(USER, PASSWORD)
}

fn redis(url: &str) -> RedisConfig {
    let mut config = RedisConfig::new(url);
    config.client = hasty();
    shown(&config);
    config
}

async fn opened(config: &RedisConfig) -> Locks {
    let locks = connected(async || RedisLocks::connect_with(config.clone()).await).await;
    let locks = failed(locks).expect("the credentials are right");
    shown(&locks);
    locks.into()
}

/// Uses the locks with these credentials and with wrong ones, then after they have changed at each of these servers.
async fn tries(config: &RedisConfig, url: &str, nodes: &[&RedisServer]) -> Locks {
    let locks = opened(config).await;
    use_all(&locks).await;
    let mut wrong = config.clone();
    wrong.url = url.replace(PASSWORD, "no-such-word");
    failed(RedisLocks::connect_with(wrong).await);
    for node in nodes {
        let operator = node.client().expect("the server has a client");
        operator.command(&["ACL", "SETUSER", USER, "resetpass", ">another"]).await.expect("the password is changed");
        operator.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await.expect("connections are ended");
    }
    eventually("the refusal is told as one", PROMPTLY, async || {
        let error = locks.mutex("refused").try_lock().await.err()?;
        let kind = error.kind();
        failed::<()>(Err(error));
        (kind == ErrorKind::Denied).then_some(())
    })
    .await;
    use_all(&locks).await;
    locks
}

/// Uses the locks when nobody is there any more.
async fn is_over(locks: Locks, config: RedisConfig) {
    use_all(&locks).await;
    failed(RedisLocks::connect_with(config).await);
    failed(locks.close().await);
}

pub(crate) async fn single() {
    let Some(server) = installed(RedisServer::start_with(&options()).await) else { return };
    let at = |user: &str, password: &str| {
        let hosts = server.url().rsplit_once('@').map_or(server.url(), |(_, hosts)| hosts);
        format!("redis://{user}:{password}@{hosts}")
    };
    let operator = server.client().expect("the server has a client");
    let known = format!(">{PASSWORD}");
    operator.command(&["ACL", "SETUSER", POOR, "on", &known, "+client"]).await.expect("a user is made");
    // Who may do nothing, and what is no URL.
    if let Some(poor) = failed(RedisLocks::connect_with(redis(&at(POOR, PASSWORD))).await) {
        use_all(&poor.into()).await;
    }
    for url in ["rediss", "http", "redis-sentinel", "redis-cluster", "unix"] {
        let url = format!("{url}://{USER}:{PASSWORD}@127.0.0.1:1/x y/%zz?{PASSWORD}");
        failed(RedisLocks::connect_with(redis(&url)).await);
    }
    let quorum =
        QuorumConfig::new([at(USER, PASSWORD), at(POOR, PASSWORD), format!("redis://{USER}:{PASSWORD}@127.0.0.1:1/")]);
    shown(&quorum);
    if let Some(locks) = failed(QuorumLocks::connect_with(quorum).await) {
        shown(&locks);
        use_all(&locks.into()).await;
    }
    let config = redis(&at(USER, PASSWORD));
    let locks = tries(&config, &at(USER, PASSWORD), &[&server]).await;
    drop(server);
    is_over(locks, config).await;
}

pub(crate) async fn over_tls() {
    let certificates = Certificates::new().expect("certificates are made");
    let options = options().with_tls(&certificates, ClientCertificates::NotAsked);
    let Some(server) = installed(RedisServer::start_with(&options).await) else { return };
    // Nobody vouches for the server.
    failed(RedisLocks::connect_with(redis(server.url())).await);
    let config = redis(server.url()).with_tls(Tls::new().with_ca_pem(certificates.authority()));
    shown(&config);
    let locks = tries(&config, server.url(), &[&server]).await;
    drop(server);
    is_over(locks, config).await;
}

pub(crate) async fn behind_sentinels() {
    let Some(deployment) = installed(SentinelDeployment::start_with(&options()).await) else { return };
    let config = redis(deployment.url());
    let master = deployment.master().await.expect("there is a master");
    let locks = tries(&config, deployment.url(), &[master]).await;
    drop(deployment);
    is_over(locks, config).await;
}

pub(crate) async fn in_a_cluster() {
    let Some(cluster) = installed(ClusterDeployment::start_with(&options()).await) else { return };
    let mut config = redis(cluster.url());
    // Its maps come from several servers.
    config.client.op_timeout = Duration::from_secs(1);
    let nodes: Vec<_> = cluster.nodes().iter().collect();
    let locks = tries(&config, cluster.url(), &nodes).await;
    drop(cluster);
    is_over(locks, config).await;
}
