//! The scripts of a quorum's own; leases are extended by that of the mutex.

use std::sync::LazyLock;

use crate::script::Script;

/// One server's part of taking a lock.
pub(super) static TAKE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../scripts/quorum/take.lua")));
/// One server's part of giving a lock back.
pub(super) static GIVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../scripts/quorum/give.lua")));
/// What one server knows of a lock.
pub(super) static LOOK: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../scripts/quorum/look.lua")));
