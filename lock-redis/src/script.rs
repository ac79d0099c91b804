//! The scripts.

use std::sync::LazyLock;

/// A script and the digest by which the server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) code: &'static str,
    pub(crate) digest: String,
}

impl Script {
    pub(crate) fn new(code: &'static str) -> Self {
        Self { code, digest: crate::digest::of(code) }
    }
}

macro_rules! script {
    ($($file:literal)+) => { Script::new(concat!($(include_str!(concat!("scripts/", $file))),+)) };
}

/// The scripts that every kind of lock has.
#[derive(Debug)]
pub(crate) struct Scripts {
    /// Takes the lock or a place in its queue.
    pub(crate) acquire: Script,
    /// Gives a grant back.
    pub(crate) release: Script,
    /// Leaves nothing of an attempt.
    pub(crate) cancel: Script,
    /// Extends a lease.
    pub(crate) renew: Script,
    /// A client's sign of life for its waiters.
    pub(crate) poke: Script,
    /// Frees one grant by force.
    pub(crate) force: Script,
    /// Who holds and who waits.
    pub(crate) inspect: Script,
}

/// Of the mutex, whose key is a plain string.
pub(crate) static MUTEX: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: script!("mutex/join.lua" "base.lua" "mutex/text.lua" "mutex/one.lua" "ask.lua" "queue.lua" "acquire.lua"),
    release: script!("mutex/hand_over.lua" "base.lua" "mutex/text.lua" "mutex/one.lua" "give.lua" "queue.lua" "release.lua"),
    cancel: script!("base.lua" "mutex/text.lua" "mutex/one.lua" "queue.lua" "cancel.lua"),
    renew: script!("mutex/renew.lua"),
    poke: script!("base.lua" "mutex/text.lua" "mutex/one.lua" "queue.lua" "poke.lua"),
    force: script!("base.lua" "mutex/text.lua" "mutex/one.lua" "queue.lua" "force.lua"),
    inspect: script!("base.lua" "mutex/text.lua" "mutex/one.lua" "inspect.lua"),
});

/// Of the other kinds, which have any number of holders in a hash.
pub(crate) static HOLDERS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: script!("holders/enter.lua" "base.lua" "holders/many.lua" "ask.lua" "queue.lua" "acquire.lua"),
    release: script!("holders/exit.lua" "base.lua" "holders/many.lua" "give.lua" "queue.lua" "release.lua"),
    cancel: script!("base.lua" "holders/many.lua" "queue.lua" "cancel.lua"),
    renew: script!("holders/renew.lua"),
    poke: script!("base.lua" "holders/many.lua" "queue.lua" "poke.lua"),
    force: script!("base.lua" "holders/many.lua" "queue.lua" "force.lua"),
    inspect: script!("base.lua" "holders/many.lua" "inspect.lua"),
});

/// The short way to a free mutex.
pub(crate) static TAKE: LazyLock<Script> = LazyLock::new(|| script!("mutex/take.lua"));
/// The short way to give a mutex back.
pub(crate) static DROP: LazyLock<Script> = LazyLock::new(|| script!("mutex/drop.lua"));
/// The usual sign of life at many mutexes at once.
pub(crate) static PEEK: LazyLock<Script> = LazyLock::new(|| script!("mutex/peek.lua"));
/// The number of permits that are held.
pub(crate) static USED: LazyLock<Script> = LazyLock::new(|| script!("base.lua" "holders/many.lua" "holders/used.lua"));
/// Gives a grant another mode.
pub(crate) static CHANGE: LazyLock<Script> =
    LazyLock::new(|| script!("base.lua" "holders/many.lua" "queue.lua" "holders/change.lua"));
