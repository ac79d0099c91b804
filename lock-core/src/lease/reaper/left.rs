//! The grants that were left and that this client has to release when their time is over: pure, without clock or I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::BootInstant;
use crate::driver::Attempt;

/// Grants by the instant at which they are to be released. There is one for each that the backend keeps anyway.
#[derive(Debug, Default)]
pub(super) struct LeftGrants {
    by_end: BTreeMap<(BootInstant, u64), Arc<Attempt>>,
    /// The number that was given out last.
    number: u64,
}

impl LeftGrants {
    pub(super) fn len(&self) -> usize {
        self.by_end.len()
    }

    /// A grant is to be released at this instant.
    pub(super) fn put(&mut self, attempt: Arc<Attempt>, ends_at: BootInstant) {
        self.number += 1;
        self.by_end.insert((ends_at, self.number), attempt);
    }

    /// The grants whose time is over, in the order in which it was.
    pub(super) fn take_due(&mut self, now: BootInstant) -> Vec<Arc<Attempt>> {
        let later = self.by_end.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.by_end, later).into_values().collect()
    }

    /// Every grant.
    pub(super) fn take_all(&mut self) -> Vec<Arc<Attempt>> {
        std::mem::take(&mut self.by_end).into_values().collect()
    }

    /// The instant to come back at.
    pub(super) fn wake_at(&self) -> BootInstant {
        self.by_end.first_key_value().map_or(BootInstant::FAR_FUTURE, |((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::driver::Kind;
    use crate::owner::Owner;

    #[test]
    fn each_is_due_at_its_own_end_and_two_of_one_instant_are_both() {
        let at = |seconds| BootInstant::from_origin(Duration::from_secs(seconds));
        let attempt = |name: &'static str| {
            Arc::new(Attempt::new(name.into(), Kind::Mutex, Owner::new(), Duration::from_secs(30)).unwrap())
        };
        let names = |due: Vec<Arc<Attempt>>| due.iter().map(|attempt| attempt.name.to_string()).collect::<Vec<_>>();
        let mut left = LeftGrants::default();
        assert_eq!(left.wake_at(), BootInstant::FAR_FUTURE);
        for (name, end) in [("c", 30), ("a", 10), ("b", 10), ("d", 40)] {
            left.put(attempt(name), at(end));
        }
        assert_eq!((left.len(), left.wake_at()), (4, at(10)));
        assert!(left.take_due(at(9)).is_empty());
        assert_eq!(names(left.take_due(at(10))), ["a", "b"]);
        assert_eq!((left.len(), left.wake_at()), (2, at(30)));
        assert_eq!(names(left.take_all()), ["c", "d"]);
        assert_eq!((left.len(), left.wake_at()), (0, BootInstant::FAR_FUTURE));
    }
}
