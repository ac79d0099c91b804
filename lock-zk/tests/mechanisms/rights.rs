//! Credentials and rights, on servers that check them.

use lock_testkit::testing::{about_time, renewed};
use lock_testkit_servers::zookeeper::{Acl, ZooKeeperClient};
use lock_zk::{Access, Error, ErrorKind, LeaseOptions, ZkConfig, ZkLocks};

use crate::support::{LASTING, PROMPTLY, connected, fails, ms, server, soon};
use crate::{DENIED_AT, connect};

fn config(url: &str) -> ZkConfig {
    ZkConfig::new(url).with_prefix("own").with_session_timeout(LASTING).with_tick_time(ms(200))
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
    for path in ["/own", "/own/mutex", "/own/mutex/kept", "/own/semaphore/kept/leases", "/own/rwlock/kept"] {
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
    let acl = truth.acl("/own/mutex/here").await.unwrap().unwrap();
    assert_eq!((acl.len(), &*acl[0].scheme, &*acl[0].id), (1, "ip", "127.0.0.1"));
    held.release().await.unwrap();
    let wrong = Access::Only(vec![("ip".to_owned(), "nonsense".to_owned())]);
    let wrong = config(server.url()).with_prefix("wrong").with_access(wrong);
    denied(wrong, async |wrong| wrong.mutex("a").try_lock().await.map(drop)).await;
}

#[tokio::test]
async fn two_identities_with_prefixes_of_their_own_are_not_in_each_others_way() {
    let Some(server) = server().await else { return };
    let mine =
        |user: &str| config(server.url()).with_prefix(user).with_access(Access::Creator).with_digest(user, "secret");
    let (one, two) = (connected(mine("one")).await, connected(mine("two")).await);
    let (a, b) = (one.mutex("same").lock().await.unwrap(), two.mutex("same").lock().await.unwrap());
    assert!(two.mutex("same").try_lock().await.unwrap().is_none());
    a.release().await.unwrap();
    b.release().await.unwrap();
    fails(connect(mine("three").with_prefix("lock")).await, ErrorKind::InvalidArgument);
}

/// Nobody but this user may read the node.
async fn close_to_others(truth: &ZooKeeperClient, path: &str) {
    let somebody =
        Acl { permissions: 31, scheme: "digest".to_owned(), id: "somebody:1c7Cvxv9mzQAnIbRG2kFF5Dk0lY=".to_owned() };
    assert!(truth.set_acl(path, &[somebody]).await.unwrap());
}

#[test]
fn one_node_that_may_not_be_read_is_no_matter_of_the_other_locks() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (locks, truth) = (connected(config(server.url())).await, server.client().await.unwrap());
        let lease = LeaseOptions::new(ms(3000)).with_renew_every(ms(300));
        let (closed, open) = (locks.mutex("closed").with_lease(lease), locks.mutex("open").with_lease(lease));
        let (closed, open) = (closed.lock().await.unwrap(), open.lock().await.unwrap());
        let directory = "/own/mutex/closed";
        let node = truth.children(directory).await.unwrap().unwrap().remove(0);
        close_to_others(&truth, &format!("{directory}/{node}")).await;
        let seen = locks.mutex("closed").inspect().await.unwrap();
        assert_eq!(seen.holders.len(), 1);
        assert!(seen.holders[0].owner.is_none() && seen.holders[0].grant == Some(closed.grant_id()), "{seen:?}");
        soon("nobody can say that it is held", PROMPTLY, closed.lost()).await;
        renewed(&open, 2).await;
        open.release().await.unwrap();
    });
}
