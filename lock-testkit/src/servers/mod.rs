//! Real servers, and as much of their wire protocols as the suite needs itself.

mod certificates;
pub(crate) mod clock;
mod deployment;
pub mod memcached;
pub(crate) mod own;
mod path;
pub(crate) mod process;
pub mod redis;
pub mod resp;
pub(crate) mod url;
pub mod zookeeper;

pub use certificates::{Certificates, ClientCertificates};
pub use clock::{ClockFault, WallClock};
pub use deployment::Deployment;
pub use redis::ClockedRedis;
