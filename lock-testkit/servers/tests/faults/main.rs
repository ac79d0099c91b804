//! Every fault does what it says, proves it, and is over when its guard is dropped.

#![cfg(test)]

mod clock;
mod process;
mod store;
