//! What each server of a quorum runs.

use std::sync::LazyLock;

use crate::script::Script;

macro_rules! script {
    ($file:literal) => {
        LazyLock::new(|| Script::new(include_str!(concat!("../scripts/quorum/", $file))))
    };
}

/// One server's part of taking a lock.
pub(super) static TAKE: LazyLock<Script> = script!("take.lua");
/// One server's part of giving a lock back.
pub(super) static GIVE: LazyLock<Script> = script!("give.lua");
/// What one server knows of a lock.
pub(super) static LOOK: LazyLock<Script> = script!("look.lua");
