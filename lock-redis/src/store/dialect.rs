//! The forms in which a lock is kept at its key, which matter to the libraries that share it.

use std::collections::HashMap;

use lock_core::LockName;
use lock_core::driver::Kind;

use super::redisson;
use super::scripts::{self, Script, Scripts};

/// The library whose clients share the mutex at a key ([`LockName::from_key`]). Everybody there must speak the same: to others the
/// key holds data of another type, and they are refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// All that do as `SET key value NX PX ttl` does: redis-py, node-redlock, redsync, redislock and others.
    #[default]
    SetNx,
    /// Redisson's `RLock`. Not in a cluster, where its waiters listen in another way.
    Redisson,
}

/// The dialects of shared keys, where they are not the default.
pub(crate) type Dialects = HashMap<String, Dialect>;

/// The form in which a lock is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// One holder, as a text: `scripts/mutex/text.lua`.
    Text,
    /// One holder, as Redisson does: `scripts/mutex/redisson.lua`.
    Redisson,
    /// Any number of them: `scripts/holders/many.lua`.
    Holders,
}

impl Form {
    pub(crate) fn of(name: &LockName, kind: Kind, dialects: &Dialects) -> Self {
        match dialects.get(name.as_str()) {
            _ if kind != Kind::Mutex => Self::Holders,
            Some(Dialect::Redisson) if name.is_key() => Self::Redisson,
            _ => Self::Text,
        }
    }

    pub(crate) fn scripts(self) -> &'static Scripts {
        match self {
            Self::Text => &scripts::MUTEX,
            Self::Redisson => &redisson::REDISSON,
            Self::Holders => &scripts::HOLDERS,
        }
    }

    /// The script that has a lock end after a time, under another nonce, where there is one.
    pub(crate) fn leave(self) -> Option<&'static Script> {
        match self {
            Self::Text => Some(&scripts::LEAVE),
            Self::Redisson => Some(&redisson::LEAVE),
            Self::Holders => None,
        }
    }
}
