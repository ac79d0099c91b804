//! One server: behind a Unix socket, with users, and at an address that another server takes over.

use std::time::Duration;

use lock_redis::{Error, ErrorKind, LossReason, RedisConfig, RedisLocks};
use lock_testkit_servers::redis::{ClusterDeployment, RedisOptions, RedisServer};

use crate::support::{PROMPTLY, configured, connect, eventually, installed, obtain, say, soon, told, with_ttl};

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_works_and_works_again_after_a_restart() {
    let options = RedisOptions::new().on_unix_socket().with_user("worker", "s3cret");
    let Some(server) = installed(RedisServer::start_with(&options).await) else { return };
    assert!(server.url().starts_with("unix:///"), "{}", server.url());
    let (a, b) = (connect(server.url()).await, connect(server.url()).await);
    let held = a.mutex("socket").lock().await.unwrap();
    assert!(b.mutex("socket").try_lock().await.unwrap().is_none());
    let waiting = tokio::spawn(async move { obtain(&b, "socket", PROMPTLY).await });
    held.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    server.restart().await.unwrap();
    obtain(&a, "socket", PROMPTLY).await.release().await.unwrap();
    let gone = RedisLocks::connect("unix:///nowhere/redis.sock").await.unwrap_err();
    assert_eq!((gone.kind(), gone.is_definite()), (ErrorKind::Unavailable, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_and_a_database_may_come_from_url_or_config() {
    let options = RedisOptions::new().with_user("worker", "s3:cret");
    let Some(server) = installed(RedisServer::start_with(&options).await) else { return };
    let url = format!("redis://{}/3", server.address());
    let denied = configured(RedisConfig::new(&url)).await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied:?}");
    let wrong = RedisConfig::new(&url).with_credentials("worker", "guessed-s3cret");
    let denied = configured(wrong).await.unwrap_err();
    assert!(denied.kind() == ErrorKind::Denied && !told(&denied).contains("guessed"), "{denied:?}");
    let config = RedisConfig::new(&url).with_credentials("worker", "s3:cret");
    let locks = configured(config).await.unwrap();
    let held = locks.mutex("users").lock().await.unwrap();
    let keyspace = say(&server, "INFO keyspace").await.to_string();
    assert!(keyspace.contains("db3:") && !keyspace.contains("db0:"), "{keyspace}");
    held.release().await.unwrap();
    let encoded = format!("redis://worker:s3%3Acret@{}/3", server.address());
    obtain(&connect(&encoded).await, "users", PROMPTLY).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_forgot_is_told_at_once_and_not_at_the_next_renewal() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let locks = with_ttl(server.url(), Duration::from_secs(300)).await;
    let held = locks.mutex("forgotten").lock().await.unwrap();
    let lost = held.lost();
    server.restart().await.unwrap();
    let reason = soon("the holder is told, long before its renewal is due", PROMPTLY * 2, lost).await;
    assert_eq!(reason, LossReason::Taken);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_becomes_a_replica_is_dialled_anew() {
    let (Some(primary), Some(server)) =
        (installed(RedisServer::start_own().await), installed(RedisServer::start_own().await))
    else {
        return;
    };
    let locks = connect(server.url()).await;
    obtain(&locks, "moves", PROMPTLY).await.release().await.unwrap();
    let made = async || say(&server, "INFO stats").await.to_string();
    let connections = |stats: &str| {
        let count = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        count.unwrap().trim().parse::<u64>().unwrap()
    };
    say(&server, &format!("REPLICAOF 127.0.0.1 {}", primary.port().unwrap())).await;
    let before = connections(&made().await);
    // Each look of ours is a connection too.
    let mut looks = 0;
    eventually("the client dials again", PROMPTLY, async || {
        let refused: Result<_, Error> = locks.mutex("moves").try_lock().await;
        assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::Unavailable), "{refused:?}");
        looks += 1;
        (connections(&made().await) > before + looks).then_some(())
    })
    .await;
    say(&server, "REPLICAOF NO ONE").await;
    obtain(&locks, "moves", PROMPTLY).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_arrangement_is_said_to_be_one() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let cluster = RedisLocks::connect(server.url().replace("redis://", "redis-cluster://")).await.unwrap_err();
    assert_eq!(cluster.kind(), ErrorKind::Unsupported, "{cluster:?}");
    assert!(told(&cluster).contains("redis://"), "{cluster:?}");
    let sentinels = RedisConfig::sentinel([server.address()], "mymaster");
    let sentinels = RedisLocks::connect_with(sentinels).await.unwrap_err();
    assert_eq!(sentinels.retry(), lock_redis::Retry::Never, "{sentinels:?}");

    let Some(nodes) = installed(ClusterDeployment::start_own().await) else { return };
    let one = connect(nodes.nodes()[0].url()).await;
    let errors = async |name: String| one.mutex(name).try_lock().await.err();
    let mut refusals = Vec::new();
    for i in 0..20 {
        refusals.extend(errors(format!("elsewhere/{i}")).await);
    }
    // Also those of this node's own slots: the counter of tokens is in another one.
    assert_eq!(refusals.len(), 20, "{refusals:?}");
    let told = told(&refusals[0]);
    assert!(refusals.iter().all(|error| error.kind() == ErrorKind::Unsupported), "{refusals:?}");
    assert!(told.contains("redis-cluster://"), "{told}");
}
