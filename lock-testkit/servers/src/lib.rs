//! Real servers, and as much of their wire protocols as the suite needs itself.

#![forbid(unsafe_code)]

mod certificates;
mod deployment;
mod disposable;
pub mod faults;
pub mod memcached;
mod own;
mod path;
mod ports;
mod process;
pub mod redis;
pub mod resp;
mod until;
mod url;
pub mod zookeeper;

pub use certificates::{Certificates, ClientCertificates};
pub use deployment::Deployment;
pub use lock_testkit::faults::WallClock;
pub use redis::ClockedRedis;
