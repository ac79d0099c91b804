//! Addresses that are wrong, servers that are down, and chroots.

use lock_zk::{ErrorKind, LockName, Phase, ZkConfig};

use crate::connect;
use crate::support::{PROMPTLY, SESSION, client, fails, ms, nodes, server, soon};

#[tokio::test]
async fn without_a_server_connecting_fails_in_time() {
    // A port of which nobody listens: bound here, and closed again.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = ZkConfig::new(format!("zk://127.0.0.1:{port}")).with_session_timeout(SESSION);
    let config = config.with_tick_time(ms(200));
    let refused = soon("refused", PROMPTLY, connect(config)).await;
    let error = fails(refused, ErrorKind::Unavailable);
    assert_eq!((error.phase(), error.backend()), (Phase::Connect, Some("zookeeper")));
    assert!(error.to_string().contains(&port.to_string()), "{error}");
    fails(connect(ZkConfig::new("redis://127.0.0.1")).await, ErrorKind::InvalidArgument);
}

#[tokio::test]
async fn a_chroot_holds_everything_and_must_be_there() {
    let Some(server) = server().await else { return };
    let truth = server.client().await.unwrap();
    let below = format!("{}/apps/a", server.url());
    let missing = connect(ZkConfig::new(below.clone())).await;
    assert!(fails(missing, ErrorKind::InvalidArgument).to_string().contains("chroot"));
    truth.create_all("/apps/a").await.unwrap();
    let locks = client(&below, SESSION).await;
    let held = locks.mutex("rooted").lock().await.unwrap();
    assert!(nodes(&truth, "rooted").await.is_empty(), "the lock is outside its chroot");
    assert_eq!(truth.children("/apps/a/lock/mutex/rooted").await.unwrap().unwrap().len(), 1);
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_shared_path_must_be_one() {
    let Some(server) = server().await else { return };
    let locks = client(server.url(), SESSION).await;
    let wrong = locks.mutex(LockName::from_key("/a/../b").unwrap());
    let error = fails(wrong.try_lock().await, ErrorKind::InvalidArgument);
    assert_eq!(error.name(), Some("/a/../b"));
}
