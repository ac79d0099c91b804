//! Faults, as values: seeded, written down as JSON, healed on drop, and able to prove that they were applied.
//!
//! Of a link ([`LinkFault`], injected by a [`Proxy`](crate::proxy::Proxy)) and of a wall clock ([`ClockFault`], injected by a
//! [`WallClock`]); those of servers are in `lock-testkit-servers`. Injecting one gives an [`Injected`] guard. A test under a
//! fault that did not happen has shown nothing: [`Injected::heal`] and [`Injected::applied`] are errors
//! ([`Unproven`]) then, and a case of the suite that meets one ends as [`Unknown`](crate::Outcome::Unknown), which is no
//! success.

mod clock;

use serde::{Deserialize, Serialize};

pub use self::clock::{ClockFault, WallClock};
pub use crate::proxy::{Injected, LinkFault, Proof, Unproven};

/// The data that a server finds when it starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Data {
    /// The server's own data, as far as they were written; nothing, if it runs without persistence.
    Kept,
    /// Nothing.
    Gone,
}
