//! The sample backend, and the code in the READMEs.

#![forbid(unsafe_code)]

pub mod sample_backend;

/// The workspace's README: its code is compiled, and run where it needs no server.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The README of `lock-core`.
#[cfg(doctest)]
#[doc = include_str!("../../lock-core/README.md")]
pub struct CoreReadme;

/// The README of `lock-redis`.
#[cfg(doctest)]
#[doc = include_str!("../../lock-redis/README.md")]
pub struct RedisReadme;

/// The README of `lock-memcached`.
#[cfg(doctest)]
#[doc = include_str!("../../lock-memcached/README.md")]
pub struct MemcachedReadme;

/// The README of `lock-recipes`.
#[cfg(doctest)]
#[doc = include_str!("../../lock-recipes/README.md")]
pub struct RecipesReadme;

/// The README of `lock-zk`.
#[cfg(doctest)]
#[doc = include_str!("../../lock-zk/README.md")]
pub struct ZkReadme;
