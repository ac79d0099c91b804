//! Real servers, and as much of their wire protocols as the suite needs itself.

mod certificates;
pub mod memcached;
mod own;
mod path;
mod ports;
mod process;
pub mod redis;
mod relay;
pub mod resp;
mod until;
mod url;
pub mod zookeeper;

pub use certificates::{Certificates, ClientCertificates};
