//! A memcached in memory: as much of it as `lock-memcached` and its suite use.
//!
//! [`store`] is what the keys hold and until when, by a clock of whole seconds, [`request`] reads a command, [`commands`] carries it out,
//! and [`server`] serves connections.

pub mod commands;
pub mod request;
pub mod server;
pub mod store;
