//! A Redis server with a clock of its own.

use std::sync::{Mutex, PoisonError};

use lock_testkit::faults::{ClockFault, WallClock};
use lock_testkit::{HarnessError, Missing};
use lock_testkit_proxy::{Injected, Proof};

use super::options::RedisOptions;
use super::server::RedisServer;
use crate::until::promptly;

/// A Redis server that goes by a wall clock of its own.
#[derive(Debug)]
pub struct ClockedRedis {
    server: RedisServer,
    clock: WallClock,
    stepped: Mutex<Option<Injected<'static>>>,
}

impl ClockedRedis {
    /// Starts one, whose clock shows the time of the machine's.
    ///
    /// # Errors
    /// As [`WallClock::new`] and [`RedisServer::start_with`].
    pub async fn start() -> Result<Self, Missing> {
        let clock = WallClock::new()?;
        let server = RedisServer::start_with(&RedisOptions::new().with_clock(&clock)).await?;
        Ok(Self { server, clock, stepped: Mutex::default() })
    }

    /// The URL that clients connect to.
    #[must_use]
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// Steps the clock so many milliseconds ahead of the machine's, or behind it, and returns the evidence that the server
    /// goes by it; no evidence if it does not.
    ///
    /// # Errors
    /// If the file that is shared with the server is gone.
    pub async fn step_clock(&self, ahead_ms: i64) -> Result<Proof, HarnessError> {
        let stepped = self.clock.inject(ClockFault::ahead_by_ms(ahead_ms))?;
        let proof = stepped.applied(promptly()).await.unwrap_or_default();
        *self.stepped.lock().unwrap_or_else(PoisonError::into_inner) = Some(stepped);
        Ok(proof)
    }
}
