//! The waiter of a semaphore to which holders of the same process may hand their permits over, decided without I/O.
//!
//! Permits that are handed over are not counted: one transaction releases as many as it makes, or more. That keeps the limit if all
//! permits were within it before, those included that somebody has made without a place in the queue and counts only then. So it goes
//! like this. The first in the queue counts all permits while it has its place, and takes its own in the place of that: then they are within the
//! limit. While anybody is in the queue, nobody makes permits without a place. If the next one had its place when the first one's went, and
//! still has it, the queue was never empty since: that one is the heir. The transaction that hands permits over to it takes its place
//! away, and so fails if that has gone.

/// The heir of the permits of one semaphore, in one process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Succession<W> {
    heir: Option<W>,
}

impl<W> Default for Succession<W> {
    fn default() -> Self {
        Self { heir: None }
    }
}

impl<W: PartialEq> Succession<W> {
    /// Notes that the first in the queue has got its permits in the place of its node, and who waited right behind that when this was
    /// asked for.
    pub fn moved_on(&mut self, next: Option<W>) {
        self.heir = next;
    }

    /// Notes that a waiter has lost its place, in whatever way.
    pub fn left(&mut self, waiter: &W) {
        self.heir.take_if(|heir| heir == waiter);
    }

    /// Returns the waiter to which any holder may hand its permits over.
    #[must_use]
    pub const fn heir(&self) -> Option<&W> {
        self.heir.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waited_behind_the_first_is_the_heir_until_its_place_goes() {
        let mut succession = Succession::default();
        assert_eq!(succession.heir(), None);
        succession.moved_on(Some(1));
        succession.left(&2);
        assert_eq!(succession.heir(), Some(&1));
        succession.moved_on(Some(2));
        assert_eq!(succession.heir(), Some(&2));
        succession.left(&2);
        assert_eq!(succession.heir(), None);
        succession.moved_on(Some(3));
        succession.moved_on(None);
        assert_eq!(succession.heir(), None, "nobody of this process is next");
    }
}
