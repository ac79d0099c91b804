//! Redis and Valkey servers of the suite's own: one alone, behind sentinels, in a cluster, or several independent ones.
//!
//! They listen on free loopback ports, and are gone when the suite is gone, even if it is killed. What is started is the
//! `redis-server` (or else `valkey-server`) on the `PATH`, or the program that [`SERVER_VARIABLE`] names.

mod clocked;
mod cluster;
mod independent;
mod members;
mod migration;
mod options;
mod program;
mod sentinel;
mod server;

pub use clocked::ClockedRedis;
pub use cluster::{CLUSTER_URL_VARIABLE, ClusterDeployment};
pub use independent::{IndependentServers, QUORUM_URLS_VARIABLE};
pub use migration::Migration;
pub use options::RedisOptions;
pub use program::SERVER_VARIABLE;
pub use sentinel::{SENTINEL_URL_VARIABLE, SentinelDeployment};
pub use server::{RedisServer, URL_VARIABLE};
