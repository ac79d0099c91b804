//! The scripts that each server of a quorum runs.

use std::sync::LazyLock;

use crate::store::scripts::Script;

macro_rules! script {
    ($file:literal) => {
        LazyLock::new(|| Script::new(include_str!(concat!("../store/scripts/quorum/", $file))))
    };
}

/// One server's part of taking a lock.
pub(super) static ACQUIRE: LazyLock<Script> = script!("acquire.lua");
/// One server's part of putting a lock under another nonce.
pub(super) static ADOPT: LazyLock<Script> = script!("adopt.lua");
/// One server's part of releasing a lock.
pub(super) static RELEASE: LazyLock<Script> = script!("release.lua");
/// Reads what one server knows of a lock.
pub(super) static INSPECT: LazyLock<Script> = script!("inspect.lua");
