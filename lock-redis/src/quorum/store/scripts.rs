//! The scripts that each server of a quorum runs.

use std::sync::LazyLock;

use crate::store::scripts::Script;

macro_rules! script {
    ($($file:literal)+) => {
        LazyLock::new(|| Script::new(concat!($(include_str!(concat!("../../store/scripts/", $file))),+)))
    };
}

/// One server's part of taking a lock.
pub(in crate::quorum) static ACQUIRE: LazyLock<Script> = script!("quorum/acquire.lua");
/// One server's part of putting a lock under another nonce.
pub(in crate::quorum) static ADOPT: LazyLock<Script> = script!("quorum/adopt.lua");
/// One server's part of releasing a lock.
pub(in crate::quorum) static RELEASE: LazyLock<Script> = script!("quorum/release.lua");
/// Reads what one server knows of a lock.
pub(in crate::quorum) static INSPECT: LazyLock<Script> = script!("quorum/inspect.lua");
/// One server's part of taking and of releasing many locks.
pub(in crate::quorum) static BATCH: LazyLock<Script> = script!(
    "begin_one.lua" "quorum/acquire.lua" "quorum/acquire_in_batch.lua"
    "begin_one.lua" "quorum/release.lua" "quorum/batch_end.lua"
);
