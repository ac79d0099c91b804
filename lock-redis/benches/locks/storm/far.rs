//! A client whose server is far away.

use std::time::Duration;

use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit::faults::Injected;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit_servers::redis::RedisServer;

use super::truth::server;
use crate::Outcome;

/// A server of its own, the link to it, and a client over that.
pub(super) struct Far {
    pub(super) locks: RedisLocks,
    pub(super) link: Proxy,
    pub(super) server: RedisServer,
    _delay: Injected<'static>,
}

impl Far {
    /// Connects over a link whose round trip takes this long.
    pub(super) async fn at(round_trip: Duration) -> Outcome<Self> {
        let server = server().await?;
        let link = Proxy::to(server.address(), Protocol::Resp)?;
        let delay = Toxic::Delay { by: round_trip / 2, jitter: Duration::ZERO };
        let delay = link.inject(LinkFault::new(delay, Direction::Both));
        let url = format!("redis://{}", link.address());
        let locks = RedisLocks::connect_with(RedisConfig::new(url).with_prefix("bench")).await?;
        Ok(Self { locks, link, server, _delay: delay })
    }
}
