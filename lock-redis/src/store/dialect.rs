//! The libraries whose clients share a mutex.

use std::collections::HashMap;

/// The library whose clients share the mutex at a key ([`LockName::from_key`](lock_core::LockName::from_key)). Everybody there must
/// speak the same: to others the key holds data of another type, and they are refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// Libraries that lock by `SET key value NX PX ttl`: redis-py, node-redlock, redsync, redislock and others.
    #[default]
    SetNx,
    /// Redisson's `RLock`. Not in a cluster, where its waiters listen in another way.
    Redisson,
}

/// The dialects of shared keys, where they are not the default.
pub(crate) type Dialects = HashMap<String, Dialect>;
