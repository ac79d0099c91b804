//! Copies of an acquisition on their way over a connection that was given up, and that the server cannot be asked to end:
//! the user lacks the right to.

use lock_redis::{ErrorKind, LeaseOptions, RedisConfig, RedisLocks};
use lock_testkit::faults::Injected;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};

use crate::server::{COUNTER, PROMPTLY, Server, eventually, hasty, ms, obtain, soon};

/// So long that no test waits for its end.
fn endless() -> LeaseOptions {
    LeaseOptions::new(ms(300_000))
}

/// A server, and a proxy by which a client without the right to `CLIENT` reaches it.
struct Way {
    server: Server,
    proxy: Proxy,
}

impl Way {
    async fn start() -> Option<Self> {
        let server = Server::start().await?;
        server.knows_the_scripts().await;
        server.say("ACL SETUSER locks on >pw ~* &* +@all -client").await;
        let proxy = Proxy::to(server.address(), Protocol::Resp).unwrap();
        Some(Self { server, proxy })
    }

    fn config(&self) -> RedisConfig {
        let mut options = hasty();
        options.patience = PROMPTLY;
        RedisConfig::new(format!("redis://locks:pw@{}", self.proxy.address())).with_client(options)
    }

    /// Holds the next request for the lock up, and whatever follows on its connection, until it is healed.
    fn hold_up(&self) -> Injected<'static> {
        self.proxy.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, "{copies}"))
    }

    async fn last_token(&self) -> Option<String> {
        self.server.run(&["GET", COUNTER]).await.as_text()
    }

    /// Tests that a request that was held up arrives, and takes the lock, which is free: for nobody, and not for long.
    async fn let_through(&self, held_up: Injected<'static>) {
        let before = self.last_token().await;
        held_up.heal().unwrap();
        eventually("it is carried out", PROMPTLY, async || self.last_token().await != before).await;
        let other = self.server.client().await;
        obtain(&other, "copies", PROMPTLY).await.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_comes_over_an_earlier_connection_after_the_release_is_undone() {
    let Some(way) = Way::start().await else { return };
    let locks = RedisLocks::connect_with(way.config()).await.unwrap();
    let held_up = way.hold_up();
    let mutex = locks.mutex("copies").with_lease(endless());
    // It asks again over the next connection, and is granted there.
    let held = soon("granted", PROMPTLY, mutex.lock()).await.unwrap();
    held.release().await.unwrap();
    way.let_through(held_up).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_without_its_replicas_is_unknown_while_a_copy_of_its_request_is_on_its_way() {
    let Some(way) = Way::start().await else { return };
    let locks = RedisLocks::connect_with(way.config().with_replicas(1, ms(100))).await.unwrap();
    let held_up = way.hold_up();
    let mutex = locks.mutex("copies").with_lease(endless());
    let refused = soon("refused", PROMPTLY, mutex.lock()).await.unwrap_err();
    assert_eq!((refused.kind(), refused.is_definite()), (ErrorKind::Indeterminate, false), "{refused}");
    assert!(refused.to_string().contains("may still be on its way"), "{refused}");
    way.let_through(held_up).await;
}
