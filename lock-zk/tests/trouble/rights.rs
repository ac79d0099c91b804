//! Credentials and rights, on servers that check them.

use lock_zk::{Access, Error, ErrorKind, ZkConfig, ZkLocks};

use crate::support::{LASTING, connected, fails, ms, server};
use crate::{DENIED_AT, connect};

fn config(url: &str) -> ZkConfig {
    ZkConfig::new(url).with_session_timeout(LASTING).with_tick_time(ms(200))
}

/// A client without rights is told so, when it connects or when it asks.
async fn denied(config: ZkConfig, ask: impl AsyncFnOnce(&ZkLocks) -> Result<(), Error>) {
    let outcome = match connect(config).await {
        Ok(locks) => ask(&locks).await,
        Err(error) => Err(error),
    };
    let error = fails(outcome, ErrorKind::Denied);
    assert!(error.is_definite() && DENIED_AT.contains(&error.phase()), "{error:?}");
}

#[tokio::test]
async fn every_node_of_a_client_that_keeps_to_itself_is_its_own() {
    let Some(server) = server().await else { return };
    let truth = server.client().await.unwrap();
    let mine = config(server.url()).with_access(Access::Creator).with_digest("me", "secret");
    let mine = connected(mine).await;
    let (mutex, permit) =
        (mine.mutex("kept").lock().await.unwrap(), mine.semaphore("kept", 2).acquire().await.unwrap());
    let write = mine.rwlock("kept").write().await.unwrap();
    let read = write.downgrade().await.unwrap();
    // Nobody but its owner may see into it; that there is a directory is seen from above.
    for path in ["/lock", "/lock/mutex", "/lock/mutex/kept", "/lock/semaphore/kept/leases", "/lock/rwlock/kept"] {
        let acl = truth.acl(path).await.unwrap_err();
        assert!(acl.to_string().contains("NoAuth") || acl.to_string().contains("-102"), "{path}: {acl}");
    }
    denied(config(server.url()), async |other| other.mutex("kept").try_lock().await.map(drop)).await;
    denied(config(server.url()), async |other| other.mutex("kept").lock().await.map(drop)).await;
    denied(config(server.url()), async |other| other.semaphore("kept", 2).try_acquire().await.map(drop)).await;
    let same = config(server.url()).with_access(Access::Creator).with_digest("me", "secret");
    let same = connected(same).await;
    assert!(same.mutex("kept").try_lock().await.unwrap().is_none());
    for released in [mutex.release().await, permit.release().await, read.release().await] {
        released.unwrap();
    }
}

#[tokio::test]
async fn nodes_may_be_for_named_identities() {
    let Some(server) = server().await else { return };
    let here = Access::Only(vec![("ip".to_owned(), "127.0.0.1".to_owned())]);
    let locks = connected(config(server.url()).with_access(here)).await;
    let held = locks.mutex("here").lock().await.unwrap();
    let truth = server.client().await.unwrap();
    let acl = truth.acl("/lock/mutex/here").await.unwrap().unwrap();
    assert_eq!((acl.len(), &*acl[0].scheme, &*acl[0].id), (1, "ip", "127.0.0.1"));
    held.release().await.unwrap();
    let wrong = Access::Only(vec![("ip".to_owned(), "nonsense".to_owned())]);
    let wrong = config(server.url()).with_prefix("wrong").with_access(wrong);
    denied(wrong, async |wrong| wrong.mutex("a").try_lock().await.map(drop)).await;
}
