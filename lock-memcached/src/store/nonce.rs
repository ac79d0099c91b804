//! The number in a lock's item, which tells whose it is.

use lock_core::GrantId;

use crate::client::cas;

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
        let number = cas::number(value).filter(|_| value.last() != Some(&b' '))?;
        (LOWEST..LOWEST + MANY).contains(&number).then_some(Self(number))
    }

    pub(crate) fn number(self) -> u64 {
        self.0
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
}
