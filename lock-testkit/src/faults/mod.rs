//! Faults, as values: seeded, written down as JSON, healed on drop, and able to prove that they were applied.
//!
//! Four kinds: of a link ([`LinkFault`], injected by a [`Proxy`](crate::proxy::Proxy)), of a server's process
//! ([`ProcessFault`]), of what it stores ([`StoreFault`]), and of its wall clock ([`ClockFault`], injected by a
//! [`WallClock`](crate::servers::WallClock)). Injecting one gives an [`Injected`] guard. A test under a
//! fault that did not happen has shown nothing: [`Injected::heal`] and [`Injected::applied`] are errors
//! ([`Unproven`]) then, and a case of the suite that meets one ends as [`Unknown`](crate::Outcome::Unknown), which is no
//! success.

mod process;
mod store;

pub(crate) use self::process::freeze_child;
pub use self::process::{Data, ProcessFault, ServerProcess};
pub use self::store::{Store, StoreFault};
pub use crate::proxy::LinkFault;
pub use crate::servers::ClockFault;
pub use lock_testkit_proxy::{Injected, Proof, Unproven};
