//! Tests of more than one file that need what no user of the crate can reach.

mod between;
mod drops;
mod inputs;
mod moves;
