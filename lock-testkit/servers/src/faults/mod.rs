//! Faults of servers, as values: of a process ([`ProcessFault`]) and of what is stored ([`StoreFault`]). Injecting one gives an
//! [`Injected`](lock_testkit::faults::Injected) guard, which heals on drop and proves that the fault was applied.

mod process;
mod store;

pub use self::process::{ProcessFault, ServerProcess};
pub use self::store::{Store, StoreFault};
