//! Panics in the tasks that keep the connections, which go on all the same: of a subscriber of `tracing` that they tell, and of their
//! own.
//!
//! Tests of one thread each: the subscriber of a thread hears what is told there.

use std::sync::Arc;

use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit::MistakenSubscriber;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};

use crate::mistaken_network::MistakenNetwork;
use crate::server::{PROMPTLY, Server, configured, eventually, long, obtain, runs, soon};

/// Cuts every connection, and lets none be made until the subscriber has panicked so often.
async fn cut(link: &Proxy, mistaken: &MistakenSubscriber, panics: usize) {
    let refused = link.inject(LinkFault::new(Toxic::Refuse, Direction::Both));
    let reset = link.inject(LinkFault::new(Toxic::Reset, Direction::Both));
    eventually("the subscriber panics", PROMPTLY, async || mistaken.panics() >= panics).await;
    reset.heal().unwrap();
    refused.heal().unwrap();
}

async fn far() -> Option<(Server, Proxy, RedisLocks)> {
    let server = Server::start().await?;
    let link = Proxy::to(server.address(), Protocol::Resp).unwrap();
    let locks = configured(RedisConfig::new(format!("redis://{}", link.address()))).await.unwrap();
    Some((server, link, locks))
}

#[tokio::test]
async fn a_subscriber_that_panics_at_each_try_to_connect_keeps_no_link_down() {
    let Some((server, link, locks)) = far().await else { return };
    let mistaken = MistakenSubscriber::at("lock_redis::client::link");
    cut(&link, &mistaken, 2).await;
    obtain(&locks, "panics/link", PROMPTLY).await.release().await.unwrap();
    server.is_as_new(&locks, "panics/link").await;
}

#[tokio::test]
async fn a_subscriber_that_panics_at_each_try_to_subscribe_keeps_no_subscription_down() {
    let Some((server, link, locks)) = far().await else { return };
    let mistaken = MistakenSubscriber::at("lock_redis::client::push");
    cut(&link, &mistaken, 2).await;
    eventually("there is a subscription again", PROMPTLY, async || {
        let told = server.say("CLIENT LIST TYPE pubsub").await;
        told.as_text().is_some_and(|told| told.contains("sub=1"))
    })
    .await;
    obtain(&locks, "panics/push", PROMPTLY).await.release().await.unwrap();
}

#[tokio::test]
async fn a_subscriber_that_panics_at_an_unanswered_heartbeat_ends_no_heartbeats() {
    let Some((server, link, locks)) = far().await else { return };
    let held = server.client().await.mutex("panics/beats").with_lease(long()).lock().await.unwrap();
    let lock = locks.mutex("panics/beats");
    let waiting = tokio::spawn(async move { lock.lock().await });
    server.until_queued("panics/beats", 1).await;
    // Its client may not know of the place yet, and would ask for it anew instead of giving signs of life.
    let before = runs(&server).await;
    eventually("a heartbeat has come", PROMPTLY, async || runs(&server).await > before).await;
    let mistaken = MistakenSubscriber::at("lock_redis::wait");
    cut(&link, &mistaken, 1).await;
    held.release().await.unwrap();
    soon("the waiter is granted", PROMPTLY, waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_panic_in_the_tasks_that_connect_costs_their_connections_at_most() {
    let Some(server) = Server::start().await else { return };
    let network = Arc::new(MistakenNetwork::to([server.address()]));
    let config = RedisConfig::new(server.url()).with_network(network.clone());
    let locks = configured(config).await.unwrap();
    let held = server.client().await.mutex("panics").with_lease(long()).lock().await.unwrap();
    let lock = locks.mutex("panics");
    let waiting = tokio::spawn(async move { lock.lock().await });
    server.until_queued("panics", 1).await;
    // Two for each of the two connections, or more for one of them.
    network.panics(4);
    for kind in ["normal", "pubsub"] {
        assert!(server.say(&format!("CLIENT KILL TYPE {kind}")).await.as_int() > Some(0));
    }
    eventually("it has panicked", PROMPTLY, async || network.has_panicked()).await;
    held.release().await.unwrap();
    soon("the waiter is granted", PROMPTLY, waiting).await.unwrap().unwrap().release().await.unwrap();
    server.is_as_new(&locks, "panics").await;
}
