//! The resource's side of fencing.
//!
//! No lock service can stop a holder that was paused past the end of its lease from sending one more write. The
//! resource can: it remembers the largest token that it has seen and refuses smaller ones.
//!
//! Every access presents its token, **reads included**. Otherwise: B reads with token 2 without saying so, the late A
//! writes with token 1 and is admitted, B writes what it computed from its read, and A's acknowledged write is lost.
//!
//! In SQL, for an exclusive token (`$1`) on a row that carries its fence:
//!
//! ```sql
//! UPDATE orders SET state = $2, fence = $1 WHERE id = $3 AND fence <= $1;
//! -- 0 rows: the token is too old, roll back
//! ```
//! and a read that presents its token: `UPDATE orders SET fence = $1 WHERE id = $2 AND fence <= $1 RETURNING state`.
//! For a resource in Redis, compare and write in one script:
//!
//! ```lua
//! if tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') > tonumber(ARGV[1]) then return 0 end
//! redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'state', ARGV[2])
//! return 1
//! ```
//! A resource whose readers share a read-write lock keeps two fences, as [`FenceGate`] does: with one, a reader would refuse another that has an older
//! token and holds as well. `docs/fencing.md` in the repository shows that in SQL and in Redis, and an object store, all tested with the real things.
//!
//! Permits of a semaphore above one cannot be fenced by order; their [`PermitToken`](crate::PermitToken) is another
//! type on purpose.
//!
//! Source: M. Kleppmann, "How to do distributed locking" (2016); the second register is ours, for readers.

use std::fmt;
use std::sync::Mutex;

use crate::sync::locked;
use crate::token::FencingToken;

/// Admits accesses to one resource by their tokens, in two registers: for exclusive and for shared grants.
///
/// An exclusive token passes if no larger token of either register was seen; a shared one if no larger exclusive token
/// was. So readers do not disturb each other, a late writer is refused after any later reader or writer, and a late
/// reader after any later writer.
///
/// # Examples
/// ```
/// use lock_core::{FencingToken, fence::FenceGate};
///
/// let token = |n| FencingToken::new(n).unwrap();
/// let gate = FenceGate::new();
/// gate.admit_exclusive(token(33)).unwrap();
/// gate.admit_shared(token(34)).unwrap();
/// assert!(gate.admit_exclusive(token(33)).is_err()); // late: a reader has seen the state since
/// ```
#[derive(Debug, Default)]
pub struct FenceGate(Mutex<HighestTokens>);

#[derive(Debug, Default, Clone, Copy)]
struct HighestTokens {
    exclusive: Option<FencingToken>,
    shared: Option<FencingToken>,
}

impl FenceGate {
    /// A gate that has seen nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(HighestTokens { exclusive: None, shared: None }))
    }

    /// A gate of a resource that has stored the largest tokens it had [seen](FenceGate::seen).
    #[must_use]
    pub const fn from_seen(exclusive: Option<FencingToken>, shared: Option<FencingToken>) -> Self {
        Self(Mutex::new(HighestTokens { exclusive, shared }))
    }

    /// Admits an access under a mutex, a reentrant lock or a write lock.
    ///
    /// The access itself must be done under the same critical section or transaction as this call.
    ///
    /// # Errors
    /// [`Stale`], if a later grant has been here.
    pub fn admit_exclusive(&self, token: FencingToken) -> Result<(), Stale> {
        let mut seen = locked(&self.0);
        check(token, seen.exclusive.max(seen.shared))?;
        seen.exclusive = Some(token);
        Ok(())
    }

    /// Admits a read under a read lock.
    ///
    /// # Errors
    /// [`Stale`], if a later writer has been here.
    pub fn admit_shared(&self, token: FencingToken) -> Result<(), Stale> {
        let mut seen = locked(&self.0);
        check(token, seen.exclusive)?;
        seen.shared = seen.shared.max(Some(token));
        Ok(())
    }

    /// The largest exclusive and shared tokens seen, to be stored with the resource.
    #[must_use]
    pub fn seen(&self) -> (Option<FencingToken>, Option<FencingToken>) {
        let seen = *locked(&self.0);
        (seen.exclusive, seen.shared)
    }
}

fn check(token: FencingToken, seen: Option<FencingToken>) -> Result<(), Stale> {
    match seen {
        Some(seen) if seen > token => Err(Stale { token, seen }),
        _ => Ok(()),
    }
}

/// A token was refused: a later grant has been at the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stale {
    /// The token that was presented.
    pub token: FencingToken,
    /// The token that stands against it.
    pub seen: FencingToken,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stale fencing token {}: the resource has seen {}", self.token, self.seen)
    }
}

impl std::error::Error for Stale {}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(value: u64) -> FencingToken {
        FencingToken::new(value).unwrap()
    }

    #[test]
    fn the_same_grant_may_come_again() {
        let gate = FenceGate::new();
        assert!(gate.admit_exclusive(token(5)).is_ok());
        assert!(gate.admit_exclusive(token(5)).is_ok());
        assert!(gate.admit_exclusive(token(4)).is_err());
    }

    #[test]
    fn readers_do_not_disturb_each_other_but_stop_a_late_writer() {
        let gate = FenceGate::new();
        gate.admit_exclusive(token(1)).unwrap();
        gate.admit_shared(token(3)).unwrap();
        gate.admit_shared(token(2)).unwrap();
        let stale = gate.admit_exclusive(token(2)).unwrap_err();
        assert_eq!((stale.token, stale.seen), (token(2), token(3)));
        gate.admit_exclusive(token(4)).unwrap();
        assert!(gate.admit_shared(token(3)).is_err());
        assert_eq!(gate.seen(), (Some(token(4)), Some(token(3))));
    }

    #[test]
    fn a_restored_gate_remembers() {
        let gate = FenceGate::from_seen(Some(token(9)), None);
        assert!(gate.admit_shared(token(8)).is_err());
        assert!(gate.admit_exclusive(token(9)).is_ok());
    }
}
