//! Faults of what servers store, on real servers.

use lock_testkit::REQUIRE_VARIABLE;
use lock_testkit::testing::{PROMPTLY, about_time, eventually};
use lock_testkit_servers::faults::StoreFault;
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};
use lock_testkit_servers::redis::{RedisOptions, RedisServer, SentinelDeployment};
use lock_testkit_servers::zookeeper::{ZooKeeperClient, ZooKeeperServer};

/// `None`, loudly, where there is no such server.
pub(crate) fn found<T>(server: Result<T, lock_testkit::Missing>) -> Option<T> {
    let required = std::env::var(REQUIRE_VARIABLE).is_ok_and(|value| value == "1");
    match server {
        Ok(server) => Some(server),
        Err(missing) if required => panic!("{REQUIRE_VARIABLE}=1, but the server is missing: {missing}"),
        Err(missing) => {
            eprintln!("SKIPPED: {missing}");
            None
        }
    }
}

pub(crate) async fn server_with(options: &RedisOptions) -> Option<RedisServer> {
    found(RedisServer::start_with(options).await)
}

#[tokio::test]
async fn scripts_and_keys_are_forgotten_and_a_flush_of_nothing_is_unproven() {
    let Some(server) = server_with(&RedisOptions::new()).await else { return };
    let redis = server.client().unwrap();
    let digest = redis.command(&["SCRIPT", "LOAD", "return 1"]).await.unwrap().to_string();
    StoreFault::ForgetScripts.inject(&server).await.unwrap().heal().unwrap();
    assert!(redis.command(&["EVALSHA", &digest, "0"]).await.is_err());
    redis.command(&["SET", "key", "value"]).await.unwrap();
    let proof = StoreFault::Flush.inject(&server).await.unwrap().heal().unwrap();
    assert_eq!(proof.seen, ["1 keys were forgotten"]);
    assert!(StoreFault::Flush.inject(&server).await.unwrap().heal().is_err());
}

#[tokio::test]
async fn keys_are_evicted_where_there_is_a_limit_and_where_there_is_none_that_is_unproven() {
    let options = RedisOptions::new().with_max_memory("6mb", "allkeys-lru").with_directive("maxmemory-samples", "64");
    let Some(server) = server_with(&options).await else { return };
    let redis = server.client().unwrap();
    let fault = StoreFault::Evict { keys: vec!["key".to_owned()] };
    assert!(fault.clone().inject(&server).await.is_err(), "what is not there cannot be evicted");
    redis.command(&["SET", "key", "value"]).await.unwrap();
    fault.inject(&server).await.unwrap().heal().unwrap();
    assert_eq!(redis.command(&["EXISTS", "key"]).await.unwrap().as_int(), Some(0));
}

#[test]
fn a_failover_moves_the_master() {
    about_time(async || {
        let Some(deployment) = found(SentinelDeployment::start_own().await) else { return };
        let before = deployment.master_address().await.unwrap();
        let proof = StoreFault::FailOver.inject(&deployment).await.unwrap().heal().unwrap();
        assert!(proof.seen[0].ends_with(&before), "{proof:?}");
        assert_ne!(deployment.master_address().await.unwrap(), before);
    });
}

#[tokio::test]
async fn a_stolen_session_is_over_and_only_a_zookeeper_has_sessions() {
    let Some(server) = found(ZooKeeperServer::start_own().await) else { return };
    let victim = server.client().await.unwrap();
    let session = victim.session().id();
    StoreFault::StealSession { session }.inject(&server).await.unwrap().heal().unwrap();
    assert!(ZooKeeperClient::take_over(server.url(), victim.session()).await.is_err());
    assert!(StoreFault::Flush.inject(&server).await.is_err());
}

#[tokio::test]
async fn items_are_flushed_and_evicted_where_there_is_a_limit_and_no_room() {
    let options = MemcachedOptions::new().with_memory(2).evicting();
    let Some(server) = found(MemcachedServer::start_with(&options).await) else { return };
    let client = server.client();
    assert!(StoreFault::Flush.inject(&server).await.unwrap().heal().is_err(), "there was nothing to forget");
    client.add("key", "1000000000000000001", 0).await.unwrap();
    let proof = StoreFault::Flush.inject(&server).await.unwrap().heal().unwrap();
    assert_eq!(proof.seen, ["1 items were forgotten"]);
    let fault = StoreFault::Evict { keys: vec!["key".to_owned()] };
    assert!(fault.clone().inject(&server).await.is_err(), "what is not there cannot be evicted");
    // What was flushed in the same second may be forgotten with it.
    eventually("stored", PROMPTLY, async || {
        client.add("key", "1000000000000000001", 0).await.unwrap();
        client.get("key").await.unwrap()
    })
    .await;
    fault.inject(&server).await.unwrap().heal().unwrap();
    assert_eq!(client.get("key").await.unwrap(), None);
}
