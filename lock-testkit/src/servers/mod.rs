//! Real servers, and as much of their wire protocols as the suite needs itself.

mod certificates;
pub(crate) mod clock;
mod deployment;
mod disposable;
pub mod memcached;
pub(crate) mod own;
mod path;
pub(crate) mod ports;
pub(crate) mod process;
pub mod redis;
pub mod resp;
pub(crate) mod until;
pub(crate) mod url;
pub mod zookeeper;

pub use certificates::{Certificates, ClientCertificates};
pub use clock::WallClock;
pub use deployment::Deployment;
pub use disposable::ClockedRedis;
