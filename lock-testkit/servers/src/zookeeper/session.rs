//! The credentials by which a server knows a session again.

use std::fmt;

/// The constant that servers mix into a session's id to make its password (`superSecret` in their sources).
const SUPER_SECRET: i64 = 0xB341_5C00;

/// A session: who shows both to a server has it, and whoever had it before loses his connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Session {
    id: i64,
    password: Vec<u8>,
}

impl Session {
    /// A session of which only the id is known, as its ephemeral nodes tell it
    /// ([`Stat::ephemeral_owner`](super::Stat::ephemeral_owner)). Its password is no secret: servers compute it from the
    /// id.
    #[must_use]
    pub fn of(id: i64) -> Self {
        let mut random = JavaRandom::new(id ^ SUPER_SECRET);
        Self { id, password: (0..4).flat_map(|_| random.next_int().to_le_bytes()).collect() }
    }

    /// None yet: a server that is shown this makes a new one.
    pub(super) fn none() -> Self {
        Self { id: 0, password: vec![0; 16] }
    }

    pub(super) fn granted(id: i64, password: Vec<u8>) -> Self {
        Self { id, password }
    }

    /// The id, which servers print in hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.id
    }

    pub(super) fn password(&self) -> &[u8] {
        &self.password
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:#x})", self.id)
    }
}

/// `java.util.Random`, whose algorithm its documentation prescribes.
struct JavaRandom(i64);

impl JavaRandom {
    const MULTIPLIER: i64 = 0x5_DEEC_E66D;
    const MASK: i64 = (1 << 48) - 1;

    fn new(seed: i64) -> Self {
        Self((seed ^ Self::MULTIPLIER) & Self::MASK)
    }

    fn next_int(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(Self::MULTIPLIER).wrapping_add(0xB) & Self::MASK;
        // 48 bits, less the lower 16.
        u32::try_from(self.0 >> 16).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_those_of_java() {
        // What `new java.util.Random(42).nextInt()` says, twice.
        let mut random = JavaRandom::new(42);
        assert_eq!([random.next_int(), random.next_int()].map(u32::cast_signed), [-1170105035, 234785527]);
    }
}
