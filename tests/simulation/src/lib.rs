//! A Redis and a memcached in memory, for the simulations in `tests/seeds` and `tests/memcached-seeds`.
//!
//! `tests/agreement` compares the Redis with a real server, step by step; `tests/conformance` has it pass the suite of `lock-redis`.
//! `tests/conformance-memcached` has the memcached pass the suite of `lock-memcached`.

pub mod memcached;
pub mod redis;
