//! Credentials by SASL.

use lock_testkit_servers::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use lock_zk::{Access, ErrorKind, ZkConfig, ZkLocks};

use crate::support::{LASTING, connected, fails, ms, there};

fn config(url: &str) -> ZkConfig {
    ZkConfig::new(url).with_prefix("own").with_session_timeout(LASTING).with_tick_time(ms(200))
}

#[tokio::test]
async fn a_user_of_sasl_owns_his_nodes_and_a_wrong_password_is_refused() {
    let options = ZooKeeperOptions::new().with_sasl_user("worker", "secret");
    let Some(server) = there(ZooKeeperServer::start_with(&options).await) else { return };
    let mine = config(server.url()).with_access(Access::Creator).with_sasl_digest("worker", "secret");
    let locks = connected(mine).await;
    let held = locks.mutex("sasl").lock().await.unwrap();
    let other = connected(config(server.url())).await;
    fails(other.mutex("sasl").try_lock().await, ErrorKind::Denied);
    held.release().await.unwrap();
    let wrong = ZkLocks::connect_with(config(server.url()).with_sasl_digest("worker", "guess")).await;
    let denied = fails(wrong, ErrorKind::Denied);
    assert!(!format!("{denied:?}{denied}").contains("guess"), "{denied:?}");
}

#[cfg(not(feature = "sasl"))]
#[tokio::test]
async fn sasl_without_its_feature_is_refused_before_anything_is_sent() {
    let refused = ZkLocks::connect_with(config("zk://127.0.0.1:1").with_sasl_digest("worker", "secret")).await;
    fails(refused, ErrorKind::Unsupported);
}
