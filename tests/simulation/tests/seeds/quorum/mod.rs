//! A quorum of three servers over the same network: at each of them go together what many tasks of a client ask for in one turn.
//!
//! `world.rs` is one run, `tasks.rs` are the tasks of one client, and `stores.rs` is what a majority of the servers has.

mod stores;
mod tasks;
mod world;

pub(crate) use world::run;
