//! The rights that the README says are enough behind sentinels, in a cluster and for replicas.

use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit_servers::redis::{ClusterDeployment, RedisServer, SentinelDeployment};

use crate::support::{FAILOVER, PROMPTLY, about_time, installed, ms, obtain, say};

const README: &str = include_str!("../../README.md");

/// The rights in the README's line for this user.
fn rights(user: &str) -> Vec<&'static str> {
    let line = README.split_once(&format!("ACL SETUSER {user} on >password ")).expect("the README has the line").1;
    let line = line.split_once("\n```").expect("it ends its block").0;
    line.split_whitespace().filter(|word| *word != "\\").collect()
}

/// The rights that the README says are needed beside those.
fn more(what: &str) -> Vec<&'static str> {
    let sentence = README.split_once("Beside these, ").expect("the README has the sentence").1;
    let clause = sentence.split([',', '.']).find(|clause| clause.contains(what)).expect("it says what for");
    clause.split('`').filter(|part| part.starts_with('+')).flat_map(str::split_whitespace).collect()
}

async fn user(server: &RedisServer, name: &str, rights: &[&str]) {
    let version = say(server, "INFO server").await.to_string();
    let old = version.contains("redis_version:7.0.");
    let known = rights.iter().filter(|right| !(old && **right == "+client|setinfo")).copied();
    let command: Vec<_> = ["ACL", "SETUSER", name, "on", ">pw"].into_iter().chain(known).collect();
    assert!(server.client().unwrap().command(&command).await.unwrap().is_ok());
}

async fn nothing_was_denied(server: &RedisServer) {
    let denied = say(server, "ACL LOG").await.into_parts();
    // Redis 7.0 knows no CLIENT SETINFO, with which the client crate introduces itself, and logs nothing of it.
    assert!(denied.is_empty(), "{}: {denied:?}", server.address());
}

/// Two clients that contend for locks.
async fn work(config: RedisConfig) {
    let connect = async || RedisLocks::connect_with(config.clone()).await.unwrap();
    let (a, b) = (connect().await, connect().await);
    for i in 0..8 {
        let name = format!("rights/{i}");
        let held = obtain(&a, &name, FAILOVER).await;
        assert!(b.mutex(name.as_str()).try_lock_for(ms(50)).await.unwrap().is_none());
        let waiting = tokio::spawn({
            let (b, name) = (b.clone(), name.clone());
            async move { obtain(&b, &name, PROMPTLY).await }
        });
        held.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
    }
}

#[test]
fn the_rights_in_the_readme_are_enough_behind_sentinels() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let locks = [rights("locks"), more("behind sentinels"), more("with_replicas")].concat();
        for node in deployment.nodes() {
            user(node, "locks", &locks).await;
        }
        for sentinel in deployment.sentinels() {
            user(sentinel, "observer", &rights("observer")).await;
        }
        let config = RedisConfig::new(deployment.url())
            .with_credentials("locks", "pw")
            .with_sentinel_credentials("observer", "pw")
            .with_replicas(1, ms(1500));
        work(config.clone()).await;
        deployment.fail_over().await.unwrap();
        work(config).await;
        for server in deployment.nodes().iter().chain(deployment.sentinels()) {
            nothing_was_denied(server).await;
        }
    });
}

#[test]
fn the_rights_in_the_readme_are_enough_in_a_cluster() {
    about_time(async || {
        let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
        let locks = [rights("locks"), more("in a cluster")].concat();
        for node in cluster.nodes() {
            user(node, "locks", &locks).await;
        }
        let config = RedisConfig::new(cluster.url()).with_credentials("locks", "pw");
        work(config.clone()).await;
        let slot = cluster.slot_of("lock:mutex:{rights/0}").await.unwrap();
        cluster.fail_over(slot).await.unwrap();
        work(config).await;
        for node in cluster.nodes() {
            nothing_was_denied(node).await;
        }
    });
}
