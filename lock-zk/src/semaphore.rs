//! The semaphore, in the layout of Curator's `InterProcessSemaphoreV2`: all or nothing, first come, first served.

use async_trait::async_trait;
use lock_core::clock::{Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, SemaphoreBackend};
use lock_core::{Error, ErrorKind, LockName, Phase, driver::wait};

use crate::backend::{Shared, ZkBackend};
use crate::client::{Fate, Wanted};
use crate::error;
use crate::seats::Seat;
use crate::trouble::{Trouble, patiently};

#[async_trait]
impl SemaphoreBackend for ZkBackend {
    async fn try_acquire(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.shared.try_now(attempt).await
    }

    async fn acquire(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.shared.wait_in_line(attempt, deadline).await
    }

    async fn shrink(&self, attempt: &Attempt, keep: u32) -> Result<(), Error> {
        let Some(seat) = self.shared.seats.of(attempt.id) else { return Err(gone(attempt)) };
        let shrunk = async {
            tokio::select! {
                biased;
                shrunk = patiently(|| self.shared.shrink(attempt, &seat, keep)) => match shrunk {
                    // An earlier request may have done it.
                    Err(Trouble::Fault(fault)) if seat.is_changing() => Err(error::unsettled(fault, Phase::Release)),
                    shrunk => shrunk.map_err(|trouble| trouble.error(Phase::Release)),
                },
                () = seat.session.ended() => Err(gone(attempt)),
            }
        };
        wait::within(&SystemClock, attempt, Phase::Release, shrunk).await
    }

    async fn permits_held(&self, name: &LockName, limit: u32) -> Result<u64, Error> {
        self.count(name, limit).await
    }
}

impl Shared {
    /// Gives back what is more than this, by one transaction. What is there is looked for each time: an earlier sending may
    /// have done it, and its answer been lost.
    async fn shrink(&self, attempt: &Attempt, seat: &Seat, keep: u32) -> Result<(), Trouble> {
        let (mut left, mut kept, mut given) = (0_u32, Vec::new(), Vec::new());
        let mut data = Vec::new();
        for (lease, node) in self.own_nodes(seat, seat.place.leases()).await? {
            let path = seat.place.lease(&lease.name);
            if lease.permits <= keep - left.min(keep) {
                left += lease.permits;
                kept.push(path);
            } else {
                given.push(path);
            }
            data = node.data;
        }
        if kept.is_empty() && given.is_empty() {
            return Err(gone(attempt).into());
        }
        if given.is_empty() {
            self.seats.has_permits(seat, kept);
            return Ok(());
        }
        // Behind a `sync`: an earlier sending has not done it.
        self.seats.has_permits(seat, kept.iter().chain(&given).cloned().collect());
        // One node for many permits: one for fewer takes its place.
        let fewer = (left < keep).then(|| seat.place.lease(&seat.place.dialect.stem_of_many(seat.grant, keep - left)));
        let fewer: Vec<_> = fewer.into_iter().map(Wanted::Numbered).collect();
        match seat.exchange(&given, &fewer, &data).await {
            Ok(new) => {
                kept.extend(new);
                self.seats.has_permits(seat, kept);
                Ok(())
            }
            Err(fault) if fault.fate == Fate::Missing => Err(gone(attempt).into()),
            Err(fault) => Err(fault.into()),
        }
    }
}

fn gone(attempt: &Attempt) -> Error {
    attempt.error(ErrorKind::NotHeld, Phase::Release, "the servers have no such permits (any more)")
}
