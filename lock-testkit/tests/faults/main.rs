//! Every fault does what it says, proves it, and is over when its guard is dropped.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test ends it")]

mod clock;
mod ends;
mod link;
mod process;
mod requests;
mod store;
