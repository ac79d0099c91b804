//! A hash, whose fields stay in the order in which they came, as in a small one of Redis.

use super::bytes::Bytes;

/// Fields and their values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hash(Vec<(Bytes, Bytes)>);

impl Hash {
    /// A field's value.
    #[must_use]
    pub fn get(&self, field: &[u8]) -> Option<&Bytes> {
        self.iter().find(|(name, _)| *name == field).map(|(_, value)| value)
    }

    /// Gives a field a value, at its old place if it has one; whether it is new.
    pub fn insert(&mut self, field: Bytes, value: Bytes) -> bool {
        let old = self.0.iter_mut().find(|(name, _)| *name == field);
        let is_new = old.is_none();
        match old {
            Some((_, old)) => *old = value,
            None => self.0.push((field, value)),
        }
        is_new
    }

    /// Removes a field; whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let place = self.0.iter().position(|(name, _)| *name == field);
        place.map(|place| self.0.remove(place)).is_some()
    }

    /// Returns the number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every field, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.0.iter().map(|(field, value)| (field, value))
    }
}
