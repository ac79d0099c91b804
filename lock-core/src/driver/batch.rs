//! Requests that wait to be sent together.

use std::collections::VecDeque;

/// Holes that are kept at most beside twice as many as there are requests.
const HOLES: usize = 64;

/// Requests that wait to be sent together, in the order in which they came: which of them are next, and which have gone away before.
///
/// Many tasks ask one server at the same moment. One of them starts a task that sends what has come together, and every request keeps
/// its own outcome. A request that is given up before it is taken was never sent; from then on it may have been. So whoever waits
/// for an outcome [leaves](Batch::leave) when its future is dropped: if it gets its request back, nothing is left to undo.
///
/// Decided without a lock, a clock or a task: a backend keeps one of these behind a mutex, for each connection or runtime. The task that
/// sends ends when [`ends`](Batch::ends) says so. If it ends in another way, by a panic or with its runtime, it [gives up](Batch::give_up)
/// when it is dropped, and tells whoever waits: otherwise nobody would ever send what comes later.
///
/// # Examples
///
/// ```
/// use lock_core::driver::Batch;
///
/// let mut batch = Batch::default();
/// let (one, other) = (batch.join("one", 3), batch.join("other", 5));
/// // The first one starts the task that sends.
/// assert!(one.sees_to_it && !other.sees_to_it);
/// // Its future is dropped before anything is sent.
/// assert_eq!(batch.leave(one.place), Some("one"));
/// assert_eq!(batch.take(64, 65_536), ["other"]);
/// // Sent, perhaps: there is nothing to take back.
/// assert_eq!(batch.leave(other.place), None);
/// // The task ends, and the next one that joins starts it anew.
/// assert!(batch.ends());
/// assert!(batch.join("third", 5).sees_to_it);
/// // The runtime of that task ends before anything is sent.
/// assert_eq!(batch.give_up(), ["third"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Batch<T> {
    /// In the order of their places. Whoever has gone away leaves a hole.
    waiting: VecDeque<(BatchPlace, Option<BatchRequest<T>>)>,
    next: u64,
    /// The number of those that wait, holes not counted.
    len: usize,
    /// Whether somebody sees to it that they are sent.
    is_seen_to: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BatchRequest<T> {
    what: T,
    bytes: usize,
}

/// The place of a request among all that ever waited in a [`Batch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchPlace(u64);

/// The place of a new request in a [`Batch`], and whether its caller must start the task that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "if nobody sees to it that what waits is sent, it never is"]
#[non_exhaustive]
pub struct Joined {
    /// The place, by which the request can be taken back.
    pub place: BatchPlace,
    /// Whether the caller must start the task that sends: none runs.
    pub sees_to_it: bool,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), next: 0, len: 0, is_seen_to: false }
    }
}

impl<T> Batch<T> {
    /// Adds a request of so many bytes.
    pub fn join(&mut self, what: T, bytes: usize) -> Joined {
        let place = BatchPlace(self.next);
        self.next += 1;
        self.len += 1;
        self.waiting.push_back((place, Some(BatchRequest { what, bytes })));
        Joined { place, sees_to_it: !std::mem::replace(&mut self.is_seen_to, true) }
    }

    /// Takes back a request; returns nothing if it does not wait here any more, and so may have been sent.
    pub fn leave(&mut self, place: BatchPlace) -> Option<T> {
        let at = self.waiting.binary_search_by_key(&place, |(place, _)| *place).ok()?;
        let left = self.waiting[at].1.take()?;
        self.len -= 1;
        self.clear_holes();
        Some(left.what)
    }

    /// Returns the number of requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the first request that waits.
    #[must_use]
    pub fn first(&self) -> Option<&T> {
        self.waiting.iter().find_map(|(_, request)| request.as_ref()).map(|request| &request.what)
    }

    /// Ends the task that sends, unless a request waits. Returns whether it has ended: that task must then take nothing more.
    #[must_use]
    pub fn ends(&mut self) -> bool {
        self.is_seen_to &= self.len > 0;
        !self.is_seen_to
    }

    /// Takes the next requests: the first one, and those after it up to `most` and as long as they have `most_bytes` at most.
    pub fn take(&mut self, most: usize, most_bytes: usize) -> Vec<T> {
        let (mut taken, mut bytes) = (Vec::with_capacity(most.min(self.len)), 0);
        while let Some((_, request)) = self.waiting.front_mut() {
            if let Some(BatchRequest { bytes: more, .. }) = request {
                if taken.len() == most || (!taken.is_empty() && bytes + *more > most_bytes) {
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

    /// Takes back every request of which this is true, such as those whose time is over.
    pub fn remove(&mut self, these: impl Fn(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for (_, request) in &mut self.waiting {
            let Some(request) = request.take_if(|request| these(&request.what)) else { continue };
            self.len -= 1;
            removed.push(request.what);
        }
        self.clear_holes();
        removed
    }

    /// Takes back every request; the next one that joins starts a new task.
    pub fn give_up(&mut self) -> Vec<T> {
        self.is_seen_to = false;
        self.len = 0;
        self.waiting.drain(..).filter_map(|(_, request)| request).map(|request| request.what).collect()
    }

    /// Forgets the places of requests that have gone: those at both ends, and all of them when they are the most.
    fn clear_holes(&mut self) {
        if self.waiting.len() > 2 * self.len + HOLES {
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

    const MOST: usize = 64;
    const MOST_BYTES: usize = 64 * 1024;

    fn of(requests: impl IntoIterator<Item = u32>) -> (Batch<u32>, Vec<BatchPlace>) {
        let mut batch = Batch::default();
        let places = requests.into_iter().map(|request| batch.join(request, 1).place).collect();
        (batch, places)
    }

    #[test]
    fn requests_are_taken_in_the_order_in_which_they_came() {
        let (mut batch, _) = of(0..10);
        assert_eq!((batch.len(), batch.first()), (10, Some(&0)));
        assert_eq!(batch.take(4, MOST_BYTES), [0, 1, 2, 3]);
        let _ = batch.join(10, 1);
        assert_eq!((batch.len(), batch.first()), (7, Some(&4)));
        assert_eq!(batch.take(MOST, MOST_BYTES), [4, 5, 6, 7, 8, 9, 10]);
        assert_eq!((batch.is_empty(), batch.first()), (true, None));
        assert!(batch.take(MOST, MOST_BYTES).is_empty());
    }

    #[test]
    fn so_many_requests_are_taken_at_most() {
        let (mut batch, _) = of(0..100);
        assert_eq!(batch.take(MOST, MOST_BYTES), (0..64).collect::<Vec<_>>());
        let _ = batch.join(100, 1);
        assert_eq!(batch.take(MOST, MOST_BYTES), (64..101).collect::<Vec<_>>());
        assert!(batch.is_empty() && batch.take(MOST, MOST_BYTES).is_empty());
    }

    #[test]
    fn so_many_bytes_are_taken_at_most_and_one_request_however_long_it_is() {
        let mut batch = Batch::default();
        for (request, bytes) in [(0, MOST_BYTES * 2), (1, MOST_BYTES - 1), (2, 1), (3, 1)] {
            let _ = batch.join(request, bytes);
        }
        assert_eq!(batch.take(MOST, MOST_BYTES), [0]);
        assert_eq!(batch.take(MOST, MOST_BYTES), [1, 2]);
        assert_eq!(batch.take(MOST, MOST_BYTES), [3]);
    }

    #[test]
    fn who_leaves_before_is_not_taken_and_who_leaves_after_was() {
        let (mut batch, places) = of(0..6);
        assert_eq!([2, 0, 5].map(|at| batch.leave(places[at])), [Some(2), Some(0), Some(5)]);
        assert_eq!([2, 0].map(|at| batch.leave(places[at])), [None; 2]);
        assert_eq!((batch.len(), batch.first()), (3, Some(&1)));
        assert_eq!(batch.take(2, MOST_BYTES), [1, 3]);
        assert_eq!([1, 3, 4].map(|at| batch.leave(places[at])), [None, None, Some(4)]);
        assert!(batch.is_empty());
    }

    #[test]
    fn nothing_is_kept_of_those_who_left() {
        let (mut batch, places) = of(0..1000);
        places.iter().for_each(|place| assert!(batch.leave(*place).is_some()));
        assert!(batch.waiting.is_empty() && batch.take(MOST, MOST_BYTES).is_empty());
    }

    #[test]
    fn little_is_kept_of_those_who_left_between_two_who_stay() {
        let (mut batch, _) = of([0]);
        let mut newest = batch.join(0, 1).place;
        for request in 1..10_000 {
            let next = batch.join(request, 1).place;
            assert!(batch.leave(std::mem::replace(&mut newest, next)).is_some());
            assert!(batch.waiting.len() <= 2 * 2 + HOLES, "{} places", batch.waiting.len());
        }
        assert_eq!(batch.take(MOST, MOST_BYTES), [0, 9_999]);
    }

    #[test]
    fn those_whose_time_is_over_are_removed_wherever_they_are() {
        let (mut batch, places) = of(0..6);
        assert_eq!(batch.remove(|request| request % 2 == 0), [0, 2, 4]);
        assert_eq!(batch.leave(places[2]), None);
        assert_eq!(batch.take(MOST, MOST_BYTES), [1, 3, 5]);
        assert!(batch.is_empty() && batch.remove(|_| true).is_empty());
    }

    #[test]
    fn one_sees_to_it_until_nobody_is_left_or_it_is_given_up() {
        let mut batch = Batch::default();
        let sees_to_it = |batch: &mut Batch<u32>| batch.join(0, 1).sees_to_it;
        assert!(sees_to_it(&mut batch) && !sees_to_it(&mut batch));
        assert!(!batch.ends(), "there are some");
        batch.take(MOST, MOST_BYTES);
        assert!(!sees_to_it(&mut batch), "whoever sees to it has not come to the end yet");
        batch.take(MOST, MOST_BYTES);
        assert!(batch.ends() && sees_to_it(&mut batch));
        assert_eq!(batch.give_up(), [0]);
        assert!(sees_to_it(&mut batch));
    }
}
