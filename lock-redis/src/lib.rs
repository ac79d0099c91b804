//! Locks on Redis.

#![forbid(unsafe_code)]
