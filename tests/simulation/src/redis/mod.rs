//! A Redis in memory: as much of it as `lock-redis` uses.
//!
//! [`store`] is what the keys hold and until when, [`commands`] what can be done with them, [`scripts`] runs Lua on them,
//! [`resp`] reads and writes the protocol, and [`server`] is what connections have in common: channels, and the killing of
//! one by another.

pub mod bytes;
pub mod commands;
pub mod hash;
pub mod resp;
pub mod scripts;
pub mod server;
pub mod store;
