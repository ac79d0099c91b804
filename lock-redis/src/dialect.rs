//! How a lock is kept at its key, which matters to the libraries that share it.

use std::collections::HashMap;
use std::sync::LazyLock;

use lock_core::LockName;
use lock_core::backend::Kind;

use crate::script::{self, Script, Scripts};

/// Which library's clients share the mutex at a key ([`LockName::at_key`]). Everybody there must speak the same: to others the
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

/// How a lock is kept.
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
            Some(Dialect::Redisson) if name.is_at_key() => Self::Redisson,
            _ => Self::Text,
        }
    }

    pub(crate) fn scripts(self) -> &'static Scripts {
        match self {
            Self::Text => &script::MUTEX,
            Self::Redisson => &REDISSON,
            Self::Holders => &script::HOLDERS,
        }
    }
}

macro_rules! script {
    ($($file:literal)+) => { Script::new(concat!($(include_str!(concat!("scripts/", $file))),+)) };
}

static REDISSON: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "ask.lua" "queue.lua" "acquire.lua"),
    release: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "give.lua" "queue.lua" "release.lua"),
    cancel: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "queue.lua" "cancel.lua"),
    renew: script!("mutex/renew_redisson.lua"),
    poke: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "queue.lua" "poke.lua"),
    force: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "queue.lua" "force.lua"),
    inspect: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "inspect.lua"),
});
