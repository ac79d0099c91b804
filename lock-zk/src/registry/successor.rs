//! The waiter of a semaphore to which holders of the same process may hand their permits over, decided without I/O.
//!
//! Permits that are handed over are not counted: one transaction releases at least as many as it makes. That keeps the limit if all permits
//! were within it before, including those that an attempt made without a place in the queue and has yet to count. So these are the rules.
//! The first in the queue counts all permits while it has its place, and exchanges the place for its own permits: then all are within the
//! limit. While anybody is in the queue, nobody makes permits without a place. If the next waiter had its place when the first one's went,
//! and still has it, the queue was never empty since: that waiter is the successor. The transaction that hands permits over to it deletes
//! its place, and so fails if the place is gone.

/// The successor of the permits of one semaphore, in one process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Successor<W> {
    waiter: Option<W>,
}

impl<W> Default for Successor<W> {
    fn default() -> Self {
        Self { waiter: None }
    }
}

impl<W: PartialEq> Successor<W> {
    /// Notes that the first in the queue has got its permits in the place of its node, and who waited right behind that when this was
    /// asked for.
    pub fn moved_on(&mut self, next: Option<W>) {
        self.waiter = next;
    }

    /// Notes that a waiter has lost its place, in whatever way.
    pub fn left(&mut self, waiter: &W) {
        self.waiter.take_if(|present| present == waiter);
    }

    /// Returns the waiter to which any holder may hand its permits over.
    #[must_use]
    pub const fn waiter(&self) -> Option<&W> {
        self.waiter.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waited_behind_the_first_is_the_successor_until_its_place_goes() {
        let mut successor = Successor::default();
        assert_eq!(successor.waiter(), None);
        successor.moved_on(Some(1));
        successor.left(&2);
        assert_eq!(successor.waiter(), Some(&1));
        successor.moved_on(Some(2));
        assert_eq!(successor.waiter(), Some(&2));
        successor.left(&2);
        assert_eq!(successor.waiter(), None);
        successor.moved_on(Some(3));
        successor.moved_on(None);
        assert_eq!(successor.waiter(), None, "nobody of this process is next");
    }
}
