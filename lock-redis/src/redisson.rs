//! The scripts of the mutex that is shared with Redisson.

use std::sync::LazyLock;

use crate::script::{Script, Scripts};

macro_rules! script {
    ($($file:literal)+) => { Script::new(concat!($(include_str!(concat!("scripts/", $file))),+)) };
}

pub(crate) static REDISSON: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "ask.lua" "queue.lua" "acquire.lua"),
    release: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "give.lua" "queue.lua" "release.lua"),
    cancel: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "queue.lua" "cancel.lua"),
    renew: script!("mutex/renew_redisson.lua"),
    poke: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "queue.lua" "poke.lua"),
    force: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "queue.lua" "force.lua"),
    inspect: script!("base.lua" "mutex/redisson.lua" "mutex/one.lua" "inspect.lua"),
});
