//! The scripts of the mutex that is shared with Redisson.

use std::sync::LazyLock;

use super::scripts::{Script, Scripts};

macro_rules! script {
    ($($file:literal)+) => { Script::new(concat!($(include_str!(concat!("scripts/", $file))),+)) };
}

/// Has a mutex end after a time, under another nonce.
pub(crate) static LEAVE: LazyLock<Script> = LazyLock::new(|| script!("mutex/leave_redisson.lua"));

pub(crate) static REDISSON: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "acquire_free.lua" "queue.lua" "acquire.lua"),
    release: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "release.lua" "queue.lua" "release_promote.lua"),
    cancel: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "queue.lua" "cancel.lua"),
    renew: script!("mutex/renew_redisson.lua"),
    heartbeat: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "queue.lua" "heartbeat.lua"),
    force_release: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "queue.lua" "force_release.lua"),
    inspect: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "inspect.lua"),
});
