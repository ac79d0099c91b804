//! Fencing tokens.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// A number that grows with every grant of one lock, by which a resource can turn away a holder that came too late.
///
/// Below 2⁵³, so that JavaScript and JSON keep it exact. A renewal, a re-entry and a downgrade keep the token of the
/// first grant. See [`FenceGate`](crate::fence::FenceGate) for the resource's side.
///
/// Source: M. Kleppmann, "How to do distributed locking" (2016).
///
/// # Examples
/// ```
/// use lock_core::FencingToken;
///
/// let (earlier, later) = (FencingToken::new(33).unwrap(), FencingToken::new(34).unwrap());
/// assert!(earlier < later && later.as_u64() == 34);
/// assert_eq!(FencingToken::new(0), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct FencingToken(u64);

impl FencingToken {
    /// The largest token, 2⁵³ − 1.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A token of this value, if it is in `1..2^53`.
    #[must_use]
    pub const fn new(value: u64) -> Option<Self> {
        if value == 0 || value > Self::MAX.0 { None } else { Some(Self(value)) }
    }

    /// The token as a number.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = &'static str;

    fn try_from(value: u64) -> Result<Self, Self::Error> {
        Self::new(value).ok_or("a fencing token lies between 1 and 2^53 - 1")
    }
}

/// Identifies one grant of a semaphore. It cannot fence, and the [`FenceGate`](crate::fence::FenceGate) does not take
/// it: several permits are held at once, so a larger number does not mean that the smaller one is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PermitToken(#[serde(deserialize_with = "checked")] u64);

impl PermitToken {
    pub(crate) const fn of(token: FencingToken) -> Self {
        Self(token.0)
    }

    /// The token as a number.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

fn checked<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    FencingToken::deserialize(deserializer).map(FencingToken::as_u64)
}

impl fmt::Display for PermitToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_that_javascript_keeps_exact_are_tokens() {
        assert_eq!(FencingToken::new(0), None);
        assert_eq!(FencingToken::new((1 << 53) - 1), Some(FencingToken::MAX));
        assert_eq!(FencingToken::new(1 << 53), None);
        assert!(serde_json::from_str::<FencingToken>("0").is_err());
        assert_eq!(serde_json::from_str::<FencingToken>("7").unwrap().as_u64(), 7);
        assert!(serde_json::from_str::<PermitToken>("0").is_err());
        let token = serde_json::from_str::<PermitToken>("7").unwrap();
        assert_eq!((token.as_u64(), serde_json::to_string(&token).unwrap()), (7, "7".to_owned()));
    }
}
