//! The requests that wait to be sent together, in their order: which of them are next, and which have gone away before. Pure:
//! told of requests and of their ends.

use std::collections::VecDeque;

/// The most requests that go together, and the bytes after which no further one joins them: a server that says how it is between two
/// requests of others is held up by this for far less than a millisecond.
pub(super) const MOST: usize = 64;
const MOST_BYTES: usize = 64 * 1024;

/// The requests of one runtime that wait to be sent together.
#[derive(Debug)]
pub(super) struct Batch<T> {
    /// In the order of their places. Whoever has gone away leaves a hole.
    waiting: VecDeque<(Place, Option<BatchRequest<T>>)>,
    next: u64,
    /// The number of those that wait, holes not counted.
    len: usize,
    /// Whether somebody sees to it that they are sent.
    is_seen_to: bool,
}

#[derive(Debug)]
struct BatchRequest<T> {
    what: T,
    bytes: usize,
}

/// The place of a request among all that ever waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u64);

/// The place of a new request, and whether it falls to whoever asked to have the batch sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Joined {
    pub(super) place: Place,
    pub(super) sees_to_it: bool,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), next: 0, len: 0, is_seen_to: false }
    }
}

impl<T> Batch<T> {
    /// Adds a request of so many bytes.
    pub(super) fn join(&mut self, what: T, bytes: usize) -> Joined {
        let place = Place(self.next);
        self.next += 1;
        self.len += 1;
        self.waiting.push_back((place, Some(BatchRequest { what, bytes })));
        Joined { place, sees_to_it: !std::mem::replace(&mut self.is_seen_to, true) }
    }

    /// Takes back a request; nothing if it does not wait here any more.
    pub(super) fn leave(&mut self, place: Place) -> Option<T> {
        let at = self.waiting.binary_search_by_key(&place, |(place, _)| *place).ok()?;
        let left = self.waiting[at].1.take()?;
        self.len -= 1;
        self.clear_holes();
        Some(left.what)
    }

    /// Whether any request waits.
    pub(super) fn is_due(&self) -> bool {
        self.len > 0
    }

    /// Takes note that nobody sees to it any more, unless somebody waits. Returns whether that is so.
    pub(super) fn ends(&mut self) -> bool {
        self.is_seen_to &= self.len > 0;
        !self.is_seen_to
    }

    /// Takes the next batch: the first request, and those after it up to the most and as long as there are not too many bytes.
    pub(super) fn take(&mut self) -> Vec<T> {
        let (mut taken, mut bytes) = (Vec::with_capacity(MOST.min(self.len)), 0);
        while let Some((_, request)) = self.waiting.front_mut() {
            if let Some(BatchRequest { bytes: more, .. }) = request {
                if taken.len() == MOST || (!taken.is_empty() && bytes + *more > MOST_BYTES) {
                    break;
                }
                bytes += *more;
            }
            taken.extend(request.take().map(|request| request.what));
            self.waiting.pop_front();
        }
        self.len -= taken.len();
        taken
    }

    /// Takes back every request of which this is true.
    pub(super) fn remove(&mut self, these: impl Fn(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for (_, request) in &mut self.waiting {
            removed.extend(request.take_if(|request| these(&request.what)).map(|request| request.what));
        }
        self.len -= removed.len();
        self.clear_holes();
        removed
    }

    /// Takes all of them; nobody sees to it any more that what comes later is sent.
    pub(super) fn give_up(&mut self) -> Vec<T> {
        self.is_seen_to = false;
        self.len = 0;
        self.waiting.drain(..).filter_map(|(_, request)| request).map(|request| request.what).collect()
    }

    /// Forgets the places of requests that have gone: those at both ends, and all of them when they are the most.
    fn clear_holes(&mut self) {
        if self.waiting.len() > 2 * self.len + MOST {
            self.waiting.retain(|(_, request)| request.is_some());
        }
        while self.waiting.front().is_some_and(|(_, request)| request.is_none()) {
            self.waiting.pop_front();
        }
        while self.waiting.back().is_some_and(|(_, request)| request.is_none()) {
            self.waiting.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(requests: impl IntoIterator<Item = u32>) -> (Batch<u32>, Vec<Place>) {
        let mut batch = Batch::default();
        let places = requests.into_iter().map(|request| batch.join(request, 1).place).collect();
        (batch, places)
    }

    #[test]
    fn requests_are_taken_in_the_order_in_which_they_came_and_so_many_at_most() {
        let (mut batch, _) = of(0..100);
        assert_eq!(batch.take(), (0..64).collect::<Vec<_>>());
        batch.join(100, 1);
        assert_eq!(batch.take(), (64..101).collect::<Vec<_>>());
        assert!(!batch.is_due() && batch.take().is_empty());
    }

    #[test]
    fn a_batch_has_so_many_bytes_at_most_and_one_request_however_long_it_is() {
        let mut batch = Batch::default();
        for (request, bytes) in [(0, MOST_BYTES * 2), (1, MOST_BYTES - 1), (2, 1), (3, 1)] {
            batch.join(request, bytes);
        }
        assert_eq!(batch.take(), [0]);
        assert_eq!(batch.take(), [1, 2]);
        assert_eq!(batch.take(), [3]);
    }

    #[test]
    fn who_leaves_before_is_not_taken_and_who_leaves_after_was() {
        let (mut batch, places) = of(0..6);
        assert_eq!([2, 0, 5].map(|at| batch.leave(places[at])), [Some(2), Some(0), Some(5)]);
        assert_eq!([2, 0].map(|at| batch.leave(places[at])), [None; 2]);
        assert_eq!(batch.take(), [1, 3, 4]);
        assert_eq!(batch.leave(places[1]), None);
        assert!(!batch.is_due());
    }

    #[test]
    fn nothing_is_kept_of_those_who_left() {
        let (mut batch, places) = of(0..1000);
        places.iter().for_each(|place| assert!(batch.leave(*place).is_some()));
        assert!(batch.waiting.is_empty() && batch.take().is_empty());
    }

    #[test]
    fn little_is_kept_of_those_who_left_between_two_who_stay() {
        let (mut batch, _) = of([0]);
        let mut newest = batch.join(0, 1).place;
        for request in 1..10_000 {
            let next = batch.join(request, 1).place;
            assert!(batch.leave(std::mem::replace(&mut newest, next)).is_some());
            assert!(batch.waiting.len() <= 2 * 2 + MOST, "{} places", batch.waiting.len());
        }
        assert_eq!(batch.take(), [0, 9_999]);
    }

    #[test]
    fn those_whose_time_is_over_are_removed_wherever_they_are() {
        let (mut batch, places) = of(0..6);
        assert_eq!(batch.remove(|request| request % 2 == 0), [0, 2, 4]);
        assert_eq!(batch.leave(places[2]), None);
        assert_eq!(batch.take(), [1, 3, 5]);
        assert!(!batch.is_due() && batch.remove(|_| true).is_empty());
    }

    #[test]
    fn one_sees_to_it_until_nobody_is_left_or_it_is_given_up() {
        let mut batch = Batch::default();
        let sees_to_it = |batch: &mut Batch<u32>| batch.join(0, 1).sees_to_it;
        assert!(sees_to_it(&mut batch) && !sees_to_it(&mut batch));
        assert!(!batch.ends(), "there are some");
        batch.take();
        assert!(!sees_to_it(&mut batch), "whoever sees to it has not come to the end yet");
        batch.take();
        assert!(batch.ends() && sees_to_it(&mut batch));
        assert_eq!(batch.give_up(), [0]);
        assert!(sees_to_it(&mut batch));
    }
}
