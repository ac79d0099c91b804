//! A quorum's client on several runtimes.

use lock_redis::QuorumConfig;
use lock_testkit::proxy::{Protocol, Proxy};
use lock_testkit_servers::redis::RedisServer;

use crate::servers::{Servers, configured, eventually, ms, obtain};

/// The requests that nobody waits for any more go on in the client's background task, on the client's runtime.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_ends_leaves_its_unanswered_requests_in_order() {
    let Some(servers) = Servers::start().await else { return };
    let link = Proxy::to(servers.each[0].address(), Protocol::Resp).unwrap();
    let through = format!("redis://{}", link.address());
    let urls = std::iter::once(&*through).chain(servers.each[1..].iter().map(RedisServer::url));
    let locks = configured(QuorumConfig::new(urls).with_young_servers(true)).await;
    for round in 0..3 {
        servers.hold_everywhere(&locks.mutex("warm")).await.release().await.unwrap();
        let before = link.connections();
        servers.stop(&[0]);
        let there = locks.clone();
        std::thread::spawn(move || {
            let short_lived = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            short_lived.block_on(async {
                // Four servers answer; what the fifth was asked is left behind.
                let held = there.mutex(format!("short {round}")).lock().await.unwrap();
                held.release().await.unwrap();
            });
        })
        .join()
        .unwrap();
        // Its requests run out of time in the background, so the connection is made anew.
        eventually("the connection is given up", ms(5000), async || link.connections() > before).await;
        servers.cont(&[0]);
        obtain(&locks, "after").await.release().await.unwrap();
    }
    // The background task is alive: it sends pending releases.
    servers.have_nothing_left(crate::servers::ALL).await;
}
