//! Tests of more than one file that need what no user of the crate can reach.

mod between;
mod inputs;
mod moves;
