//! The requests that wait to be sent together, in their order: which of them are next, and which have gone away before. Pure:
//! told of requests and of their ends.

use std::collections::VecDeque;

/// The bytes after which no further request joins a batch: a run of their script takes far less than 5 ms.
const MOST_BYTES: usize = 64 * 1024;

/// The requests of one kind that wait to be sent together.
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

    /// Takes back a request; returns whether it still waited here, and so was never sent.
    pub(super) fn leave(&mut self, place: Place) -> bool {
        let Ok(at) = self.waiting.binary_search_by_key(&place, |(place, _)| *place) else { return false };
        let left = self.waiting[at].1.take().is_some();
        self.len -= usize::from(left);
        self.clear_holes();
        left
    }

    /// The number of requests that the next batch of up to `most` would have, and the first of them; with nobody left, nobody sees to
    /// it any more.
    pub(super) fn due(&mut self, most: usize) -> Option<(usize, &T)> {
        if self.len == 0 {
            self.is_seen_to = false;
        }
        let first = self.waiting.iter().find_map(|(_, request)| request.as_ref())?;
        Some((self.len.min(most), &first.what))
    }

    /// Takes the next batch: the first request, and those after it up to `most` and as long as there are not too many bytes.
    pub(super) fn take(&mut self, most: usize) -> Vec<T> {
        let (mut taken, mut bytes) = (Vec::with_capacity(most.min(self.len)), 0);
        while let Some((_, request)) = self.waiting.front_mut() {
            if let Some(BatchRequest { bytes: more, .. }) = request {
                if taken.len() == most || (!taken.is_empty() && bytes + *more > MOST_BYTES) {
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

    /// Takes all of them; nobody sees to it any more that what comes later is sent.
    pub(super) fn give_up(&mut self) -> Vec<T> {
        self.is_seen_to = false;
        self.len = 0;
        self.waiting.drain(..).filter_map(|(_, request)| request).map(|request| request.what).collect()
    }

    /// A hole at an end is none.
    fn clear_holes(&mut self) {
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

    const MOST: usize = 128;

    fn of(requests: impl IntoIterator<Item = u32>) -> (Batch<u32>, Vec<Place>) {
        let mut batch = Batch::default();
        let places = requests.into_iter().map(|request| batch.join(request, 1).place).collect();
        (batch, places)
    }

    #[test]
    fn requests_are_taken_in_the_order_in_which_they_came() {
        let (mut batch, _) = of(0..10);
        assert_eq!(batch.due(MOST), Some((10, &0)));
        assert_eq!(batch.take(4), [0, 1, 2, 3]);
        batch.join(10, 1);
        assert_eq!(batch.due(MOST), Some((7, &4)));
        assert_eq!(batch.take(MOST), [4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(batch.due(MOST), None);
        assert!(batch.take(MOST).is_empty());
    }

    #[test]
    fn a_batch_has_so_many_requests_at_most() {
        let (mut batch, _) = of(0..300);
        assert_eq!(batch.due(MOST), Some((MOST, &0)));
        assert_eq!(batch.take(MOST), (0..128).collect::<Vec<_>>());
        assert_eq!(batch.due(MOST), Some((MOST, &128)));
    }

    #[test]
    fn a_batch_has_so_many_bytes_at_most_and_one_request_however_long_it_is() {
        let mut batch = Batch::default();
        for (request, bytes) in [(0, MOST_BYTES * 2), (1, MOST_BYTES - 1), (2, 1), (3, 1)] {
            batch.join(request, bytes);
        }
        assert_eq!(batch.take(MOST), [0]);
        assert_eq!(batch.take(MOST), [1, 2]);
        assert_eq!(batch.take(MOST), [3]);
    }

    #[test]
    fn who_leaves_before_is_not_taken_and_who_leaves_after_was() {
        let (mut batch, places) = of(0..6);
        assert!(batch.leave(places[2]) && batch.leave(places[0]) && batch.leave(places[5]));
        assert!(!batch.leave(places[2]) && !batch.leave(places[0]));
        assert_eq!(batch.due(MOST), Some((3, &1)));
        assert_eq!(batch.take(2), [1, 3]);
        assert!(!batch.leave(places[1]) && !batch.leave(places[3]) && batch.leave(places[4]));
        assert_eq!(batch.due(MOST), None);
    }

    #[test]
    fn nothing_is_kept_of_those_who_left() {
        let (mut batch, places) = of(0..1000);
        places.iter().for_each(|place| assert!(batch.leave(*place)));
        assert!(batch.waiting.is_empty() && batch.take(MOST).is_empty());
    }

    #[test]
    fn one_sees_to_it_until_nobody_is_left_or_it_is_given_up() {
        let mut batch = Batch::default();
        let sees_to_it = |batch: &mut Batch<u32>| batch.join(0, 1).sees_to_it;
        assert!(sees_to_it(&mut batch) && !sees_to_it(&mut batch));
        batch.take(MOST);
        assert!(!sees_to_it(&mut batch), "whoever sees to it has not come to the end yet");
        batch.take(MOST);
        assert_eq!(batch.due(MOST), None);
        assert!(sees_to_it(&mut batch));
        assert_eq!(batch.give_up(), [0]);
        assert!(sees_to_it(&mut batch));
    }
}
