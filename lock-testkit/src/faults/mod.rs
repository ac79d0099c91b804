//! Faults, as values: seeded, written down as JSON, healed on drop, and able to prove that they were applied.
//!
//! Four kinds: of a link ([`LinkFault`], injected by a [`Proxy`](crate::proxy::Proxy)), of a server's process
//! ([`ProcessFault`]), of what it stores ([`StoreFault`]), and of its wall clock ([`ClockFault`], injected by a
//! [`WallClock`](crate::servers::WallClock)). Injecting one gives an [`Injected`] guard. A test under a
//! fault that did not happen has shown nothing: [`Injected::heal`] and [`Injected::applied`] are errors
//! ([`Unproven`]) then, and a case of the suite that meets one ends as [`Unknown`](crate::Outcome::Unknown), which is no
//! success.

mod clock;
mod injected;
mod process;
mod store;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::clock::ClockFault;
pub(crate) use self::injected::Effect;
pub use self::injected::{Injected, Proof, Unproven};
pub(crate) use self::process::freeze_child;
pub use self::process::{Data, ProcessFault, ServerProcess};
pub use self::store::{Store, StoreFault};
pub use crate::proxy::LinkFault;

/// Any fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Fault {
    /// Of a link.
    Link(LinkFault),
    /// Of a server's process.
    Process(ProcessFault),
    /// A fault of a server's stored data.
    Store(StoreFault),
    /// Of a server's wall clock.
    Clock(ClockFault),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(fault) => fault.fmt(f),
            Self::Process(fault) => write!(f, "{fault:?}"),
            Self::Store(fault) => write!(f, "{fault:?}"),
            Self::Clock(fault) => write!(f, "{fault:?}"),
        }
    }
}
