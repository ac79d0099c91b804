//! The opening of connections: where the server's name leads, and which of its places answers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::log;
use lock_core::{Error, Phase};

use super::connection::Connection;
use super::{ConnectionPool, InUse, Link};
use crate::address::Address;
use crate::client::rights::Precedence;
use crate::error::Failure;

impl Link {
    /// Resolves the address; that has to be done by `until`.
    pub(crate) async fn resolve(&self, until: BootInstant) -> Result<(), Error> {
        let found = self.lookup.places(&self.network, &self.address, |_| until).await;
        let found = found.map_err(|error| self.error(Failure::unresolved(&error), Phase::Connect))?;
        self.pool().places.resolved(SystemClock.now(), found);
        Ok(())
    }

    /// The places that the server's name has now; those that are known if it cannot be looked up soon, so that there is time to try them.
    async fn look_up(&self, until: BootInstant) -> Result<Vec<SocketAddr>, Failure> {
        let is_known = self.pool().places.is_any_known();
        let until = |began| if is_known { share(began, until, 2) } else { until };
        let found = self.lookup.places(&self.network, &self.address, until).await;
        let (mut pool, now) = (self.pool(), SystemClock.now());
        pool.places.resolved(now, found.as_ref().cloned().unwrap_or_default());
        match (pool.places.to_try(now), found) {
            (Some(places), _) => Ok(places),
            (None, Err(error)) => Err(Failure::unresolved(&error)),
            (None, Ok(_)) => Err(Failure::unresolved(&Arc::new(io::ErrorKind::NotFound.into()))),
        }
    }

    /// Whether the server was reached at another place than before, ever.
    pub(crate) fn has_moved(&self) -> bool {
        self.pool().moves > 0
    }

    /// A connection that is opened for this, whatever others there are, for steps that end by this instant.
    pub(crate) async fn newly_opened(&self, until: BootInstant) -> Result<InUse<'_>, Failure> {
        let mut used = InUse::of(self, self.right(until, Precedence::Usual).await?, until);
        let (pipe, moves) = self.open(until).await?;
        (used.pipe, used.moves) = (Some(pipe), moves);
        Ok(used)
    }

    pub(super) async fn open(&self, until: BootInstant) -> Result<(Connection, u64), Failure> {
        let known = self.pool().places.to_try(SystemClock.now());
        let places = match known {
            Some(places) => places,
            None => self.look_up(until).await?,
        };
        let number = self.pool().opens(self.most.saturating_sub(self.rights.given()));
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        let many = places.len();
        for (tried, place) in places.into_iter().enumerate() {
            let share = share(SystemClock.now(), until, many - tried);
            match Connection::open(&*self.network, place, number, share).await {
                Ok(pipe) => return Ok((pipe, self.pool().reached(place, &self.address))),
                Err(error) => last = error,
            }
        }
        self.pool().places.in_doubt();
        Err(Failure::of_io(last, false))
    }
}

impl ConnectionPool {
    /// The number of a connection that is about to be opened. At most so many stay beside those in use.
    fn opens(&mut self, beside: usize) -> u64 {
        self.idle.drain(..self.idle.len().saturating_sub(beside));
        self.opened += 1;
        self.opened
    }

    fn reached(&mut self, place: SocketAddr, address: &Address) -> u64 {
        if self.places.reached(place) {
            log(|| tracing::warn!(server = %address, %place, "the server's name leads to another place"));
            self.moves += 1;
            self.idle.clear();
        }
        self.moves
    }
}

/// The instant by which one of so many steps has to be over, so that there is time for each of the others.
fn share(now: BootInstant, until: BootInstant, steps: usize) -> BootInstant {
    let steps = u32::try_from(steps).unwrap_or(u32::MAX).max(1);
    now.plus(until.since(now) / steps)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_place_that_does_not_answer_leaves_time_for_the_others() {
        let at = |ms| BootInstant::from_origin(Duration::from_millis(ms));
        assert_eq!(share(at(1000), at(3000), 2), at(2000));
        assert_eq!(share(at(2000), at(3000), 1), at(3000));
        assert_eq!(share(at(1100), at(3000), 2), at(2050), "what one did not need is for the others");
        assert_eq!(share(at(4000), at(3000), 2), at(4000), "the time is over");
    }
}
