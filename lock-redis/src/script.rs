//! The scripts.

use std::sync::LazyLock;

/// A script and the digest by which the server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) code: &'static str,
    pub(crate) digest: String,
}

impl Script {
    fn new(code: &'static str) -> Self {
        Self { code, digest: redis::Script::new(code).get_hash().to_owned() }
    }
}

macro_rules! scripts {
    ($($(#[doc = $doc:literal])+ $name:ident = $($file:literal)+;)+) => {
        $($(#[doc = $doc])+
        pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($(include_str!(concat!("scripts/", $file))),+)));)+

        /// Every script, to be loaded when a connection is made.
        pub(crate) fn all() -> impl Iterator<Item = &'static Script> {
            [$(&$name),+].into_iter().map(|script| &**script)
        }
    };
}

scripts! {
    /// The short way to a free lock.
    TAKE = "take.lua";
    /// The short way to give a lock back.
    DROP = "drop.lua";
    /// Takes the lock or a place in its queue.
    ACQUIRE = "join.lua" "queue.lua" "acquire.lua";
    /// Gives the lock back.
    RELEASE = "hand_over.lua" "queue.lua" "release.lua";
    /// Leaves nothing of an attempt.
    CANCEL = "queue.lua" "cancel.lua";
    /// Extends a lease.
    RENEW = "renew.lua";
    /// A client's sign of life for its waiters.
    POKE = "queue.lua" "poke.lua";
    /// Frees one grant by force.
    FORCE = "queue.lua" "force.lua";
    /// Who holds and who waits.
    INSPECT = "queue.lua" "inspect.lua";
    /// One server's part of taking a lock of a quorum.
    QUORUM_TAKE = "quorum/take.lua";
    /// One server's part of giving a lock of a quorum back.
    QUORUM_GIVE = "quorum/give.lua";
    /// What one server of a quorum knows of a lock.
    QUORUM_LOOK = "quorum/look.lua";
}
