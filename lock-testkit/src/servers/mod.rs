//! Real servers, and as much of their wire protocols as the suite needs itself.

pub mod redis;
pub mod resp;
