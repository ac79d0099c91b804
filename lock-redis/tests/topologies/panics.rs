//! Panics in the tasks that listen to sentinels and connect to servers, which go on all the same. (The task that keeps a cluster's map
//! makes no connection, so that nothing here can make it panic.)

use std::sync::Arc;

use lock_redis::RedisConfig;
use lock_testkit_servers::redis::{ClusterDeployment, RedisServer, SentinelDeployment};

use crate::mistaken_network::MistakenNetwork;
use crate::support::{FAILOVER, PROMPTLY, configured, connect, eventually, installed, obtain, say, soon};

/// Ends every connection to these servers, and has so many of the next ones end the tasks that make them.
async fn end_connections(servers: &[&RedisServer], network: &MistakenNetwork, panics: usize) {
    network.panics(panics);
    for server in servers {
        for kind in ["normal", "pubsub"] {
            say(server, &format!("CLIENT KILL TYPE {kind}")).await;
        }
    }
    eventually("it has panicked", PROMPTLY, async || network.has_panicked()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_a_waiter_outlives_panics_of_the_tasks_that_connect() {
    let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
    let nodes: Vec<_> = cluster.nodes().iter().collect();
    let network = Arc::new(MistakenNetwork::to(nodes.iter().map(|node| node.address())));
    let locks = configured(RedisConfig::new(cluster.url()).with_network(network.clone())).await.unwrap();
    let other = connect(cluster.url()).await;
    let held = other.mutex("panics").lock().await.unwrap();
    let waiting = tokio::spawn(async move { obtain(&locks, "panics", FAILOVER).await });
    eventually("somebody waits", PROMPTLY, async || {
        other.mutex("panics").inspect().await.is_ok_and(|found| found.waiters.len() == 1)
    })
    .await;
    end_connections(&nodes, &network, 12).await;
    held.release().await.unwrap();
    soon("the waiter is granted", FAILOVER, waiting).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sentinel_is_listened_to_again_after_panics_of_the_tasks_that_do() {
    let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
    let sentinels: Vec<_> = deployment.sentinels().iter().collect();
    let network = Arc::new(MistakenNetwork::to(sentinels.iter().map(|sentinel| sentinel.address())));
    let locks = configured(RedisConfig::new(deployment.url()).with_network(network.clone())).await.unwrap();
    let are_listened_to = async || {
        for sentinel in &sentinels {
            let listeners = say(sentinel, "CLIENT LIST TYPE pubsub").await.as_text().unwrap();
            if listeners.lines().count() != 1 {
                return false;
            }
        }
        true
    };
    eventually("all are listened to", PROMPTLY, are_listened_to).await;
    // More than there are listeners: whoever asks for the master finds its connections ended, too.
    end_connections(&sentinels, &network, 5).await;
    eventually("all are listened to again", FAILOVER, are_listened_to).await;
    deployment.fail_over().await.unwrap();
    obtain(&locks, "panics", FAILOVER).await.release().await.unwrap();
}
