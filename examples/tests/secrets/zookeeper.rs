//! ZooKeeper, with a digest, and with SASL over TLS.

use std::time::Duration;

use lock_core::{Error, Locks};
use lock_testkit::testing::installed;
use lock_testkit_servers::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use lock_testkit_servers::{Certificates, ClientCertificates};
use lock_zk::{Tls, ZkConfig, ZkLocks};

use crate::heap::{failed, shown};
use crate::{PASSWORD, USER, hasty, use_all};

fn zookeeper(url: &str) -> ZkConfig {
    let mut config = ZkConfig::new(url);
    config.client = hasty();
    config
}

/// For connecting where nobody is, which takes as long as a session lasts.
pub(crate) fn impatient(config: ZkConfig) -> ZkConfig {
    config.with_session_timeout(Duration::from_secs(1)).with_tick_time(Duration::from_millis(200))
}

/// A server of a busy machine may be slow to open a session, which is not what this is about.
async fn opened(config: &ZkConfig) -> ZkLocks {
    let locks = lock_testkit::testing::connected(async || ZkLocks::connect_with(config.clone()).await).await;
    failed(locks).expect("the server is there")
}

/// Uses the locks with these credentials and with wrong ones, then without a server.
async fn tries(server: ZooKeeperServer, right: ZkConfig, wrong: ZkConfig) {
    shown(&(&right, &wrong));
    let locks = opened(&right).await;
    shown(&locks);
    let erased: Locks = locks.into();
    use_all(&erased).await;
    let stranger: Result<ZkLocks, Error> = ZkLocks::connect_with(wrong).await;
    if let Some(stranger) = failed(stranger) {
        use_all(&stranger.into()).await;
    }
    drop(server);
    use_all(&erased).await;
    failed(ZkLocks::connect_with(impatient(right)).await);
}

pub(crate) async fn with_a_digest() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    for url in [format!("zk://{USER}:{PASSWORD}@127.0.0.1:1/"), format!("http://{USER}:{PASSWORD}@a/%zz")] {
        failed(ZkLocks::connect_with(impatient(zookeeper(&url))).await);
    }
    let config = zookeeper(server.url());
    let wrong = config.clone().with_digest(USER, format!("{PASSWORD}-wrong"));
    tries(server, config.with_digest(USER, PASSWORD), wrong).await;
}

pub(crate) async fn over_tls_by_sasl() {
    let certificates = Certificates::new().expect("certificates are made");
    let options = ZooKeeperOptions::new().with_tls(&certificates, ClientCertificates::NotAsked);
    let Some(server) = installed(ZooKeeperServer::start_with(&options.with_sasl_user(USER, PASSWORD)).await) else {
        return;
    };
    let config = zookeeper(server.url()).with_tls(Tls::new(certificates.authority()));
    let wrong = config.clone().with_sasl_digest(USER, format!("{PASSWORD}-wrong"));
    tries(server, config.with_sasl_digest(USER, PASSWORD), wrong).await;
}
