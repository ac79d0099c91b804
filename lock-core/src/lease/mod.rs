//! Leases: how long a grant lives, how it is renewed, and how its holder learns that it is gone.
//!
//! [`state`] is the pure state machine, [`keeper`] the one task per client that drives it, [`reaper`] the one task that
//! finishes releases and cancellations in the background, and [`Lease`] what a guard shows of all that.
//!
//! Lock, grant and lease are three things. A lock is a name. A grant is one success of an attempt, with a random id. A lease is the time for
//! which that grant is believed in, and only [`state`] judges it.

mod attended;
mod background;
mod ended;
mod expires_within;
mod grant;
mod guard;

pub(crate) mod keeper;
mod leave;
mod lost;
mod one_shot;
pub(crate) mod reaper;
mod runtime;
pub mod state;
mod table;
mod work;

pub(crate) use attended::Attended;
pub use ended::{Ended, Ending};
pub use expires_within::ExpiresWithin;
pub(crate) use grant::LiveGrant;
pub use guard::Lease;
pub use leave::LeaveError;
pub(crate) use leave::{check_leave, leave};
pub use lost::Lost;
pub use work::WorkError;
pub(crate) use work::{drop_when, scoped};
