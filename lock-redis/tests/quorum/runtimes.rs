//! A quorum's client on several runtimes.

use crate::servers::{Servers, hasty, ms, obtain};

/// The requests that nobody waits for any more go on in the client's background task, on the client's runtime.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_ends_leaves_its_unanswered_requests_in_order() {
    let Some(servers) = Servers::start().await else { return };
    let locks = lock_redis::QuorumLocks::connect_with(servers.config().with_client(hasty())).await.unwrap();
    servers.hold_everywhere(&locks.mutex("warm")).await.release().await.unwrap();
    for round in 0..3 {
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
        // Its requests run out of time, in the background.
        tokio::time::sleep(ms(700)).await;
        servers.cont(&[0]);
        obtain(&locks, "after").await.release().await.unwrap();
    }
    // The background task is alive: it gives back what a server owes.
    servers.have_nothing_left(crate::servers::ALL).await;
}
