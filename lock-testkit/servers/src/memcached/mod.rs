//! Memcached servers of the suite's own, and as much of their text protocol as ground truth needs.
//!
//! They listen on free loopback ports, and are gone when the suite is gone, even if it is killed. What is started is the
//! `memcached` on the `PATH`, or the program that [`SERVER_VARIABLE`] names.

mod client;
mod items;
mod options;
mod program;
mod server;

pub use client::Memcached;
pub use items::Item;
pub use options::MemcachedOptions;
pub use program::SERVER_VARIABLE;
pub use server::{MemcachedServer, URL_VARIABLE};
