//! The scripts, each put together from files in `scripts/`: the header of a file tells its keys, arguments and reply.
//!
//! A script that can hand a lock over has its short ways first, if any, and then `base.lua`. What holds the lock comes next: for a
//! mutex `mutex/one.lua` (one grant, in a plain string by `text.lua`, or as Redisson keeps it by `redisson.lua`), for the other kinds
//! `holders/many.lua` (a hash with an end for each grant). Then come the queue (`queue.lua`) and the step itself. So all kinds have one
//! queue, and a step is written once. The files in `several/` make one script for several locks.
//!
//! The usual cases have short ways (`*_short.lua`), because the definition of the queue's functions costs the server time: a free lock,
//! a queue in which others of the client stand, a hand-over to the first waiter, and the heartbeats of many locks. On one server the
//! short ways of a mutex for which many tasks ask at the same moment are one script, which calls the same code for each of them
//! (`docs/decisions/0025-requests-that-go-together.md`).

use std::sync::LazyLock;

/// A script and the digest by which the server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) code: &'static str,
    pub(crate) digest: String,
}

impl Script {
    pub(crate) fn new(code: &'static str) -> Self {
        Self { code, digest: super::digest::of(code) }
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
    /// Releases a grant.
    pub(crate) release: Script,
    /// Leaves nothing of an attempt.
    pub(crate) cancel: Script,
    /// Extends a lease.
    pub(crate) renew: Script,
    /// A client's sign of life for its waiters.
    pub(crate) heartbeat: Script,
    /// Frees one grant by force.
    pub(crate) force_release: Script,
    /// Lists who holds and who waits.
    pub(crate) inspect: Script,
}

/// Of the mutex, whose key is a plain string.
pub(crate) static MUTEX: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: script!("mutex/enqueue_short.lua" "base.lua" "mutex/text.lua" "mutex/one.lua" "acquire_free.lua" "queue.lua" "acquire.lua"),
    release: script!("mutex/handover_short.lua" "base.lua" "mutex/text.lua" "mutex/one.lua" "release.lua" "queue.lua" "release_promote.lua"),
    cancel: script!("base.lua" "mutex/text.lua" "mutex/one.lua" "queue.lua" "cancel.lua"),
    renew: script!("mutex/renew.lua"),
    heartbeat: script!("base.lua" "mutex/text.lua" "mutex/one.lua" "queue.lua" "heartbeat.lua"),
    force_release: script!("base.lua" "mutex/text.lua" "mutex/one.lua" "queue.lua" "force_release.lua"),
    inspect: script!("base.lua" "mutex/text.lua" "mutex/one.lua" "inspect.lua"),
});

/// Of the other kinds, which have any number of holders in a hash.
pub(crate) static HOLDERS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: script!("holders/acquire_short.lua" "holders/enqueue_short.lua" "base.lua" "holders/many.lua" "acquire_free.lua" "queue.lua" "acquire.lua"),
    release: script!("holders/release_short.lua" "holders/handover_short.lua" "base.lua" "holders/many.lua" "release.lua" "queue.lua" "release_promote.lua"),
    cancel: script!("base.lua" "holders/many.lua" "queue.lua" "cancel.lua"),
    renew: script!("holders/renew.lua"),
    heartbeat: script!("base.lua" "holders/many.lua" "queue.lua" "heartbeat.lua"),
    force_release: script!("base.lua" "holders/many.lua" "queue.lua" "force_release.lua"),
    inspect: script!("base.lua" "holders/many.lua" "inspect.lua"),
});

/// The short way to a free mutex.
pub(crate) static ACQUIRE_SHORT: LazyLock<Script> = LazyLock::new(|| script!("mutex/acquire_short.lua"));
/// The short way to release a mutex.
pub(crate) static RELEASE_SHORT: LazyLock<Script> = LazyLock::new(|| script!("mutex/release_short.lua"));
/// The short way to many free mutexes at once.
pub(crate) static ACQUIRE_BATCH: LazyLock<Script> =
    LazyLock::new(|| script!("raise_tokens.lua" "queues_of_batch.lua" "mutex/acquire_batch.lua"));
/// The short way to release many mutexes at once.
pub(crate) static RELEASE_BATCH: LazyLock<Script> = LazyLock::new(|| script!("mutex/release_batch.lua"));
/// The usual way to many locks of the other kinds at once.
pub(crate) static ACQUIRE_HOLDERS_BATCH: LazyLock<Script> = LazyLock::new(
    || script!("raise_tokens.lua" "queues_of_batch.lua" "begin_one.lua" "holders/acquire_short.lua" "holders/acquire_batch_end.lua"),
);
/// The usual way to release many grants of the other kinds at once.
pub(crate) static RELEASE_HOLDERS_BATCH: LazyLock<Script> =
    LazyLock::new(|| script!("queues_of_batch.lua" "holders/release_batch.lua"));
/// The usual sign of life at many mutexes at once.
pub(crate) static HEARTBEAT_SHORT: LazyLock<Script> = LazyLock::new(|| script!("mutex/heartbeat_short.lua"));
/// Has a mutex end after a time, under another nonce.
pub(crate) static LEAVE: LazyLock<Script> = LazyLock::new(|| script!("mutex/leave.lua"));
/// Stamps or writes the record beside a mutex.
pub(crate) static RECORD: LazyLock<Script> = LazyLock::new(|| script!("mutex/record.lua"));
/// Reads the record beside a mutex.
pub(crate) static READ_RECORD: LazyLock<Script> = LazyLock::new(|| script!("mutex/read_record.lua"));
/// The number of permits that are held.
pub(crate) static PERMITS_HELD: LazyLock<Script> =
    LazyLock::new(|| script!("base.lua" "holders/many.lua" "holders/permits_held.lua"));
/// Gives a grant another mode.
pub(crate) static CHANGE_MODE: LazyLock<Script> =
    LazyLock::new(|| script!("base.lua" "holders/many.lua" "queue.lua" "holders/change_mode.lua"));
/// Takes several locks of one slot at once: all of them, or none.
pub(crate) static SEVERAL: LazyLock<Script> = LazyLock::new(|| {
    script!(
        "raise_tokens.lua"
        "begin_one.lua" "mutex/acquire_short.lua" "several/mutex_taken.lua"
        "begin_one.lua" "mutex/release_short.lua" "several/mutex_given.lua"
        "begin_one.lua" "holders/acquire_short.lua" "base.lua" "holders/many.lua" "acquire_free.lua"
        "several/holders_taken.lua"
        "begin_one.lua" "holders/release_short.lua" "base.lua" "holders/many.lua" "release.lua"
        "several/holders_given.lua"
        "several/all_or_none.lua"
    )
});
