//! Real servers, and as much of their wire protocols as the suite needs itself.

mod ports;
mod process;
pub mod redis;
pub mod resp;
mod until;
mod url;
