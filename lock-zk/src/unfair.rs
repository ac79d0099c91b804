//! The mutex without a line: whoever claims it first when it is free has it.
//!
//! A claim is one transaction, which deletes the lock's directory, makes it anew, and makes a node in it. A directory with
//! anything in it cannot be deleted, so the claim fails as a whole while somebody holds the lock or stands in line for it.
//! The node has the name that it would have in line, and the number 0, so that everything else knows it: renewal, release,
//! cancellation, inspection, and whoever does stand in line. Nobody else ever makes a node of this name, so a late release
//! frees nobody else.
//!
//! Whoever is refused waits for the node that is in the way, as everybody else does, and all of them claim again.

use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{Attempt, Kind};

use crate::backend::Shared;
use crate::client::Fate;
use crate::line::Look;
use crate::seats::Seat;
use crate::trouble::Trouble;

impl Shared {
    /// Whether this attempt claims. At a path that is shared with clients of other libraries everybody stands in line.
    pub(crate) fn is_unfair(&self, attempt: &Attempt) -> bool {
        self.unfair_mutex && attempt.kind == Kind::Mutex && !attempt.name.is_at_key()
    }

    /// Claims a lock for this seat; if somebody else has it, who.
    pub(crate) async fn claim(&self, seat: &Seat, card: &[u8]) -> Result<Look, Trouble> {
        let (connection, directory) = (&seat.session.connection, &seat.place.directory);
        let path = seat.place.unnumbered(seat.grant);
        loop {
            let sent_at = SystemClock.now();
            match connection.claim(directory, &path, card).await {
                Ok(Some(node)) => {
                    self.seats.has_node(seat, node);
                    return Ok(Look::First(sent_at));
                }
                Ok(None) => {
                    if let Some(path) = self.first_of(seat).await? {
                        return Ok(Look::Behind(path));
                    }
                }
                Err(fault) if fault.fate == Fate::Missing => self.make_directory(seat).await?,
                Err(fault) => return Err(self.not_seated(seat, fault)),
            }
        }
    }

    /// The node of whoever is first in line, or holds the lock; `None` if it has become free.
    async fn first_of(&self, seat: &Seat) -> Result<Option<String>, Trouble> {
        match seat.session.connection.children(&seat.place.directory).await {
            Ok(names) => Ok(seat.place.line(names)?.first().map(|first| seat.place.path(&first.name))),
            Err(fault) if fault.fate == Fate::Missing => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }
}
