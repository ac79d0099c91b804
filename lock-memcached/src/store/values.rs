//! Values of items: the number that tells whose a lock is, and durations as the server counts them.
//!
//! The server counts in whole seconds, by a clock that ends items early.
//!
//! An item with a TTL of n seconds lives for more than n − 2 and at most n seconds: its second has begun when it is
//! stored, and about every 500 s the server's clock makes up for its drift with a step of two. After a pause of the server its
//! clock may be behind by 2.5 s more before it is noticed (see [`crate::epoch`]). So a lease is stored with [`MARGIN`],
//! which is more than both together, beyond its end: what ends first is always the holder's own deadline.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::driver::Attempt;
use lock_core::{Error, ErrorKind, GrantId, Phase};

/// All numbers have 19 digits, so that one can take another's place without new memory. None is 2⁶³ or more: in what follows
/// the item of such a number, 1.6.18 looks for a minus sign, and if it finds one there, it calls the item non-numeric.
const LOWEST: u64 = 1_000_000_000_000_000_000;
const MANY: u64 = 8_200_000_000_000_000_000;

/// The number of a grant: 62 of its id's random bits. An item also has a CAS number, which no two have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Nonce(u64);

impl Nonce {
    pub(crate) fn of(grant: GrantId) -> Self {
        let mut first = [0; 8];
        first.copy_from_slice(&grant.as_bytes()[..8]);
        Self(LOWEST + u64::from_be_bytes(first) % MANY)
    }

    /// Out of an item's value; `None` for what another library has stored.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        // None of ours ever becomes shorter: none has blanks after it.
        let number = number(value).filter(|_| value.last() != Some(&b' '))?;
        (LOWEST..LOWEST + MANY).contains(&number).then_some(Self(number))
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }

    #[cfg(test)]
    pub(crate) fn of_a_test(by_chance: u64) -> Self {
        Self(LOWEST + by_chance % MANY)
    }
}

/// The number that an item holds, as the server writes it: digits, without a sign or zeros before them. One that became
/// shorter has blanks after it.
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    let blanks = value.iter().rev().take_while(|byte| **byte == b' ').count();
    match &value[..value.len() - blanks] {
        [] => None,
        [b'0', _, ..] => None,
        digits => digits.iter().try_fold(0_u64, |number, digit| {
            let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
            number.checked_mul(10)?.checked_add(digit.into())
        }),
    }
}

/// The longest TTL, in seconds: 30 days. A higher number is an instant since 1970.
pub(crate) const LONGEST_TTL: u32 = 30 * 24 * 60 * 60;

/// The present time by the wall clock, since 1970.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Time for which an item is stored beyond its lease.
pub(crate) const MARGIN: Duration = Duration::from_secs(5);

/// Time for which an item blocks others beyond its lease if nobody deletes it: the margin, and what rounding adds.
pub(crate) const OUTLASTS: Duration = Duration::from_secs(MARGIN.as_secs() + 1);

/// The TTL of an item that is to live for this long at least.
pub(crate) fn seconds(lease: Duration) -> u32 {
    let whole = lease.as_secs() + u64::from(lease.subsec_nanos() > 0);
    // No lease is longer than a day.
    u32::try_from(whole + MARGIN.as_secs()).unwrap_or(u32::MAX)
}

/// The longest lease that a client grants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LongestLease(Duration);

impl LongestLease {
    /// The most that an epoch can say.
    pub(crate) const MOST: Duration = Duration::from_secs((1 << 9) - 1);

    pub(crate) fn new(longest: Duration) -> Self {
        Self(longest)
    }

    /// Refuses an attempt with a longer TTL.
    pub(crate) fn check(self, attempt: &Attempt, ttl: Duration) -> Result<(), Error> {
        if ttl <= self.0 {
            return Ok(());
        }
        let what = format!("the TTL is {ttl:?}, above the client's longest_lease of {:?}", self.0);
        Err(attempt.error(ErrorKind::InvalidArgument, Phase::Configure, what))
    }

    /// The longest lease itself.
    pub(crate) fn get(self) -> Duration {
        self.0
    }

    /// The TTL of an item that is to outlast every lease.
    pub(crate) fn seconds(self) -> u32 {
        seconds(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_has_nineteen_digits_and_is_read_again() {
        for byte in [0, 1, 127, 128, 255] {
            let nonce = Nonce::of(GrantId::from_bytes([byte; 16]));
            let text = nonce.number().to_string();
            assert!(i64::try_from(nonce.number()).is_ok());
            assert_eq!((text.len(), Nonce::read(text.as_bytes())), (19, Some(nonce)));
        }
        for foreign in [&b""[..], b"1", b"worker-1", b"\xff", b"9223372036854775807"] {
            assert_eq!(Nonce::read(foreign), None);
        }
    }

    #[test]
    fn a_lease_is_rounded_up_and_has_its_margin() {
        for (ms, expected) in [(100, 6), (1000, 6), (1001, 7), (10_000, 15), (86_400_000, 86_405)] {
            assert_eq!(seconds(Duration::from_millis(ms)), expected, "{ms} ms");
        }
    }
}
