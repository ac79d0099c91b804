//! Panics in the tasks that look for the servers and connect to them, which go on all the same.

use std::sync::Arc;

use lock_redis::RedisConfig;
use lock_testkit_servers::redis::{ClusterDeployment, RedisServer, SentinelDeployment};

use crate::mistaken_network::MistakenNetwork;
use crate::support::{FAILOVER, PROMPTLY, configured, connect, eventually, installed, obtain, say, soon};

/// A waiter is granted its lock although the tasks of its client panic when every connection is ended.
async fn a_waiter_outlives_panics(url: &str, servers: &[&RedisServer], network: &Arc<MistakenNetwork>) {
    let locks = configured(RedisConfig::new(url).with_network(network.clone())).await.unwrap();
    let other = connect(url).await;
    let held = other.mutex("panics").lock().await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { obtain(&locks, "panics", FAILOVER).await }
    });
    eventually("somebody waits", PROMPTLY, async || {
        other.mutex("panics").inspect().await.is_ok_and(|found| found.waiters.len() == 1)
    })
    .await;
    // Some for each of the tasks.
    network.panics(12);
    for server in servers {
        for kind in ["normal", "pubsub"] {
            say(server, &format!("CLIENT KILL TYPE {kind}")).await;
        }
    }
    eventually("it has panicked", PROMPTLY, async || network.has_panicked()).await;
    held.release().await.unwrap();
    soon("the waiter is granted", FAILOVER, waiting).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_a_waiter_and_the_map_outlive_panics() {
    let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
    let (network, nodes) = (Arc::default(), cluster.nodes().iter().collect::<Vec<_>>());
    a_waiter_outlives_panics(cluster.url(), &nodes, &network).await;
    // The map is asked for anew, over connections of its own.
    let locks = configured(RedisConfig::new(cluster.url()).with_network(network.clone())).await.unwrap();
    network.panics(3);
    let slot = cluster.slot_of("lock:mutex:{panics}").await.unwrap();
    cluster.fail_over(slot).await.unwrap();
    obtain(&locks, "panics", FAILOVER).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_sentinels_a_waiter_and_the_watch_for_a_master_outlive_panics() {
    let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
    let servers: Vec<_> = deployment.nodes().iter().chain(deployment.sentinels()).collect();
    let network = Arc::default();
    a_waiter_outlives_panics(deployment.url(), &servers, &network).await;
    let locks = configured(RedisConfig::new(deployment.url()).with_network(network.clone())).await.unwrap();
    network.panics(3);
    deployment.fail_over().await.unwrap();
    obtain(&locks, "panics", FAILOVER).await.release().await.unwrap();
}
