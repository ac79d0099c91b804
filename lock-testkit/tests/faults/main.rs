//! Every fault does what it says, proves it, and is over when its guard is dropped.

#![cfg(test)]

mod clock;
mod ends;
mod link;
mod process;
mod requests;
mod store;
