//! What the kinds with several holders have in common. The data is told in `scripts/holders/many.lua`.

use std::sync::Arc;

use lock_core::clock::{Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind, Released};
use lock_core::{Error, ErrorKind, Phase};

use crate::acquire;
use crate::backend::RedisBackend;
use crate::release::{ReleaseRequest, SentBefore};
use crate::store::scripts;

impl RedisBackend {
    pub(crate) async fn try_holders(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        let keys = self.shared.checked_keys(&attempt.name, attempt.kind)?;
        let until = self.shared.until();
        let granted = acquire::once(&self.shared, &keys, attempt, until).await?;
        self.confirmed(attempt, granted, until).await
    }

    pub(crate) async fn wait_for_holders(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let keys = Arc::new(self.shared.checked_keys(&attempt.name, attempt.kind)?);
        let granted = acquire::in_turn(&self.shared, &keys, attempt, deadline, SystemClock.now(), None).await?;
        self.confirmed(attempt, granted, self.shared.until()).await
    }

    /// Gives a grant another mode, of no more weight.
    pub(crate) async fn change(&self, attempt: &Attempt, mode: &str, phase: Phase) -> Result<(), Error> {
        let keys = &self.shared.keys(&attempt.name, attempt.kind);
        let until = self.shared.until();
        let request = ReleaseRequest { script: &scripts::CHANGE_MODE, keys, attempt, mode, phase, until };
        match self.shared.run_release(request, SentBefore::NEVER).await? {
            Released::Done => Ok(()),
            _ => {
                let what = "the server has no such grant (any more)";
                Err(attempt.error(ErrorKind::NotHeld, phase, what).with_server(self.shared.link.server()))
            }
        }
    }
}

/// What an attempt asks for, as the scripts write it.
pub(crate) fn mode(attempt: &Attempt) -> String {
    match attempt.kind {
        Kind::Read => "R".to_owned(),
        Kind::Write => "W".to_owned(),
        Kind::Reentrant => format!("O{}", attempt.owner.id()),
        Kind::Permits { permits: n, limit } => permits(n, limit),
        // A mutex has one holder, and no mode.
        _ => String::new(),
    }
}

/// The mode of a semaphore's grant.
pub(crate) fn permits(permits: u32, limit: u32) -> String {
    format!("P{permits}/{limit}")
}
