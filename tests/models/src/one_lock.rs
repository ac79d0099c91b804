//! The only lock of a model of `lock-redis`.

use lock_redis::machine::Lock;

/// The only lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OneLock;

impl Lock for OneLock {
    fn name(&self) -> &str {
        "lock"
    }

    fn is_shared(&self) -> bool {
        false
    }
}
