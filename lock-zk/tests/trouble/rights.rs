//! Credentials and rights, on servers that check them.

#[cfg(feature = "sasl")]
use lock_testkit::servers::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use lock_zk::{Access, ErrorKind, ZkConfig, ZkLocks};

use crate::support::{PROMPTLY, SESSION, fails, ms, server, soon};

fn config(url: &str) -> ZkConfig {
    ZkConfig::new(url).with_session_timeout(SESSION).with_tick_time(ms(200))
}

#[tokio::test]
async fn every_node_of_a_client_that_keeps_to_itself_is_its_own() {
    let Some(server) = server().await else { return };
    let truth = server.client().await.unwrap();
    let mine = config(server.url()).with_access(Access::Creator).with_digest("me", "secret");
    let mine = ZkLocks::connect_with(mine).await.unwrap();
    let (mutex, permit) =
        (mine.mutex("kept").lock().await.unwrap(), mine.semaphore("kept", 2).acquire().await.unwrap());
    let write = mine.rwlock("kept").write().await.unwrap();
    let read = write.downgrade().await.unwrap();
    // Nobody but its owner may see into it; that there is a directory is seen from above.
    for path in ["/lock", "/lock/mutex", "/lock/mutex/kept", "/lock/semaphore/kept/leases", "/lock/rwlock/kept"] {
        let acl = truth.acl(path).await.unwrap_err();
        assert!(acl.to_string().contains("NoAuth") || acl.to_string().contains("-102"), "{path}: {acl}");
    }
    let other = ZkLocks::connect_with(config(server.url())).await.unwrap();
    let denied = fails(other.mutex("kept").try_lock().await, ErrorKind::Denied);
    assert!(denied.is_definite(), "{denied}");
    fails(other.mutex("kept").lock().await, ErrorKind::Denied);
    fails(other.semaphore("kept", 2).try_acquire().await, ErrorKind::Denied);
    let same = config(server.url()).with_access(Access::Creator).with_digest("me", "secret");
    let same = ZkLocks::connect_with(same).await.unwrap();
    assert!(same.mutex("kept").try_lock().await.unwrap().is_none());
    for released in [mutex.release().await, permit.release().await, read.release().await] {
        released.unwrap();
    }
}

#[tokio::test]
async fn rights_are_shown_again_after_a_reconnection() {
    let Some(server) = server().await else { return };
    let long = config(server.url()).with_session_timeout(ms(8000));
    let locks = ZkLocks::connect_with(long.with_access(Access::Creator).with_digest("me", "secret")).await.unwrap();
    let held = locks.mutex("again").with_ttl(ms(8000)).lock().await.unwrap();
    server.restart().await.unwrap();
    soon("the release", PROMPTLY, held.release()).await.unwrap();
    soon("the next", PROMPTLY, locks.mutex("again").lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn nodes_may_be_for_named_identities() {
    let Some(server) = server().await else { return };
    let here = Access::Only(vec![("ip".to_owned(), "127.0.0.1".to_owned())]);
    let locks = ZkLocks::connect_with(config(server.url()).with_access(here)).await.unwrap();
    let held = locks.mutex("here").lock().await.unwrap();
    let truth = server.client().await.unwrap();
    let acl = truth.acl("/lock/mutex/here").await.unwrap().unwrap();
    assert_eq!((acl.len(), &*acl[0].scheme, &*acl[0].id), (1, "ip", "127.0.0.1"));
    held.release().await.unwrap();
    let wrong = Access::Only(vec![("ip".to_owned(), "nonsense".to_owned())]);
    let wrong = ZkLocks::connect_with(config(server.url()).with_prefix("wrong").with_access(wrong)).await.unwrap();
    fails(wrong.mutex("a").try_lock().await, ErrorKind::Denied);
}

#[cfg(feature = "sasl")]
#[tokio::test]
async fn a_user_of_sasl_owns_his_nodes_and_a_wrong_password_is_refused() {
    let options = ZooKeeperOptions::new().with_sasl_user("worker", "secret");
    let Some(server) = crate::support::there(ZooKeeperServer::start_with(&options).await) else { return };
    let mine = config(server.url()).with_access(Access::Creator).with_sasl_digest("worker", "secret");
    let locks = ZkLocks::connect_with(mine).await.unwrap();
    let held = locks.mutex("sasl").lock().await.unwrap();
    let other = ZkLocks::connect_with(config(server.url())).await.unwrap();
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
