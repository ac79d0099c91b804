//! Every fault of a link does what it says, proves it, and is over when its guard is dropped.

#![cfg(test)]

mod ends;
mod link;
mod requests;
