//! Pushes that come late.

use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};

use crate::server::{HAND_OVER, PROMPTLY, SLACK, Server, about_time, hasty, long, ms, obtain, soon};

#[test]
fn a_push_that_comes_after_the_claim_time_is_not_believed() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let (holder, next) = (server.client().await, server.client().await);
        let proxy = Proxy::to(server.address(), Protocol::Resp).unwrap();
        let mut options = hasty();
        // Longer than anything is held up: its connections stay.
        (options.op_timeout, options.patience) = (PROMPTLY, PROMPTLY * 3);
        let config = RedisConfig::new(format!("redis://{}", proxy.address())).with_client(options);
        let late = RedisLocks::connect_with(config).await.unwrap().mutex("pushes").with_lease(long());

        let held = holder.mutex("pushes").with_lease(long()).lock().await.unwrap();
        let waiting = tokio::spawn(async move { late.lock().await.unwrap() });
        server.until_queued("pushes", 1).await;
        let behind = tokio::spawn(obtain(&next, "pushes", PROMPTLY));
        server.until_queued("pushes", 2).await;
        // It is granted the lock, and hears nothing of that for longer than the claim.
        let held_up = proxy.inject(LinkFault::new(Toxic::Hold, Direction::ToClient));
        held.release().await.unwrap();
        let second = soon("the one behind it, after its claim", ms(2000) + HAND_OVER + SLACK, behind).await.unwrap();
        held_up.heal().unwrap();
        // The push comes, and what it does is join the queue once more.
        server.until_queued("pushes", 1).await;
        assert!(second.is_held() && !waiting.is_finished(), "two hold the lock");
        let token = second.fencing_token();
        second.release().await.unwrap();
        let third = soon("its turn after that", HAND_OVER + SLACK, waiting).await.unwrap();
        assert!(third.fencing_token() > token);
        third.release().await.unwrap();
        server.is_as_new(&next, "pushes").await;
    });
}
