//! ZooKeeper servers of the suite's own, and as much of their protocol as ground truth and faults need.
//!
//! They listen on free loopback ports, and are gone when the suite is gone, even if it is killed. What is started is what
//! Debian's package `zookeeper` brings, or what [`CLASS_PATH_VARIABLE`] names.

mod client;
mod connection;
mod ensemble;
mod jute;
mod links;
mod options;
mod program;
mod records;
mod server;
mod session;
mod tick;
mod watch;

pub use client::ZooKeeperClient;
pub use ensemble::{ENSEMBLE_URL_VARIABLE, ZooKeeperEnsemble};
pub use options::ZooKeeperOptions;
pub use program::CLASS_PATH_VARIABLE;
pub use records::{Acl, NodeKind, Stat};
pub use server::status::Mode;
pub use server::{URL_VARIABLE, ZooKeeperServer};
pub use session::Session;
pub use tick::{TICK_VARIABLE, tick_time};
pub use watch::Change;
