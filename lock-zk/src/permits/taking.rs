//! The taking of permits, decided without I/O: one transaction makes them, in the place of the node in the queue, or without one
//! while nobody is in the queue. It fails if that node is gone, or if somebody is there.

use crate::store::node::is_used_up;

/// The answers to requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakingEvent {
    /// The permits were made.
    Made,
    /// Refused: the node in the queue is gone, or there is no directory for permits.
    Missing,
    /// Refused without a place: somebody is in the queue.
    Occupied,
    /// The directory was made.
    DirectoryMade,
    /// The answer is lost: it may have been carried out.
    Unanswered,
    /// Whether there are permits of this attempt.
    Found(bool),
    /// Whether the permits up to ours are within the limit.
    Counted(bool),
}

/// The next step: a request, whose answer is told, or the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakingAction {
    /// Makes the permits.
    Make,
    /// Makes the directory of the permits, and without a place that of the queue.
    MakeDirectory,
    /// Searches, behind a `sync`, for permits of this attempt and this session.
    Find,
    /// Counts the permits that were made before ours, and ours.
    Count,
    /// The attempt has its permits.
    Taken,
    /// The permits are too many, and are released.
    GiveBack,
    /// The node in the queue is gone, or somebody is in the queue: nothing was taken.
    InVain,
}

/// One taking of permits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Taking {
    /// Whether somebody may make permits meanwhile: then those that were made before ours are counted behind ours.
    counts: bool,
    made_directory: bool,
}

impl Taking {
    /// A taking in the place of the first node in the queue. At a shared path others make a permit first and count then.
    #[must_use]
    pub const fn in_place(is_shared: bool) -> Self {
        Self { counts: is_shared, made_directory: false }
    }

    /// A taking without a place in the queue. Others do so at the same time, so it counts behind.
    #[must_use]
    pub const fn without_place() -> Self {
        Self { counts: true, made_directory: false }
    }

    /// Takes what happened, and returns what is to be done. A taking begins with [`TakingAction::Make`].
    pub const fn step(&mut self, event: TakingEvent) -> TakingAction {
        match event {
            TakingEvent::Made | TakingEvent::Found(true) if self.counts => TakingAction::Count,
            TakingEvent::Made | TakingEvent::Found(true) | TakingEvent::Counted(true) => TakingAction::Taken,
            // As long as nobody has had a permit there is no directory for them.
            TakingEvent::Missing if !self.made_directory => {
                self.made_directory = true;
                TakingAction::MakeDirectory
            }
            TakingEvent::Missing | TakingEvent::Occupied | TakingEvent::Found(false) => TakingAction::InVain,
            TakingEvent::DirectoryMade => TakingAction::Make,
            TakingEvent::Unanswered => TakingAction::Find,
            TakingEvent::Counted(false) => TakingAction::GiveBack,
        }
    }
}

/// Returns the number of permits that are left when everybody before us, who asked for so many each, has got theirs; none if
/// somebody of them has to wait.
pub(super) fn left_behind(left: u32, asked_before: impl IntoIterator<Item = u32>) -> u32 {
    asked_before.into_iter().try_fold(left, u32::checked_sub).unwrap_or(0)
}

/// A node of permits, as a listing shows it.
#[derive(Debug, Clone, Copy)]
pub struct PermitNode {
    /// Its number, as the servers have given it.
    pub number: i32,
    /// The permits for which it stands.
    pub permits: u32,
    /// Whether it may be in the place of one that stood for more permits, and has the higher number of its own.
    pub may_have_moved: bool,
    /// Whether it is of the grant that counts.
    pub is_ours: bool,
}

/// Whether ours are within the limit when all that were made before the last of them are counted, whoever has made them. One that may have
/// moved counts whatever its number is: it was made in the queue, and so by somebody who has counted ours if they were there.
#[must_use]
pub fn is_within(limit: u32, nodes: impl Iterator<Item = PermitNode> + Clone) -> bool {
    // When the numbers are used up, they do not say who came first: everybody counts then.
    let order = |number: i32| if is_used_up(number) { i32::MAX } else { number };
    let of_ours = nodes.clone().filter(|node| node.is_ours).map(|node| order(node.number));
    let Some(last) = of_ours.max() else { return false };
    let counted = nodes.filter(|node| node.may_have_moved || order(node.number) <= last);
    counted.fold(0_u32, |counted, node| counted.saturating_add(node.permits)) <= limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_counted_once_more_only_where_others_may_be() {
        for event in [TakingEvent::Made, TakingEvent::Found(true)] {
            assert_eq!(Taking::in_place(false).step(event), TakingAction::Taken);
            assert_eq!(Taking::in_place(true).step(event), TakingAction::Count);
        }
        assert_eq!(Taking::in_place(true).step(TakingEvent::Counted(true)), TakingAction::Taken);
        assert_eq!(Taking::in_place(true).step(TakingEvent::Counted(false)), TakingAction::GiveBack);
    }

    #[test]
    fn without_a_place_permits_are_counted_always_and_somebody_in_the_queue_goes_first() {
        let taking = Taking::without_place;
        assert_eq!(taking().step(TakingEvent::Made), TakingAction::Count);
        assert_eq!(taking().step(TakingEvent::Found(true)), TakingAction::Count);
        assert_eq!(taking().step(TakingEvent::Occupied), TakingAction::InVain);
    }

    #[test]
    fn a_directory_is_made_once_and_then_the_place_is_gone() {
        let mut taking = Taking::in_place(false);
        assert_eq!(taking.step(TakingEvent::Missing), TakingAction::MakeDirectory);
        assert_eq!(taking.step(TakingEvent::DirectoryMade), TakingAction::Make);
        assert_eq!(taking.step(TakingEvent::Missing), TakingAction::InVain);
    }

    #[test]
    fn what_was_not_answered_is_searched_for() {
        let mut taking = Taking::in_place(false);
        assert_eq!(taking.step(TakingEvent::Unanswered), TakingAction::Find);
        assert_eq!(taking.step(TakingEvent::Unanswered), TakingAction::Find);
        assert_eq!(taking.step(TakingEvent::Found(false)), TakingAction::InVain);
    }

    #[test]
    fn who_came_earlier_gets_his_permits_first() {
        assert_eq!(left_behind(3, [1, 1]), 1);
        assert_eq!(left_behind(3, []), 3);
        assert_eq!(left_behind(3, [2, 2]), 0, "the second one waits");
        assert_eq!(left_behind(3, [4]), 0);
    }

    #[test]
    fn permits_that_were_made_behind_ours_do_not_count() {
        let nodes = [(3, 1, true), (1, 2, false), (4, 1, true), (5, 7, false)].map(permit_node);
        assert!(is_within(4, nodes.into_iter()));
        assert!(!is_within(3, nodes.into_iter()));
        assert!(!is_within(9, [permit_node((1, 1, false))].into_iter()), "ours are gone");
    }

    #[test]
    fn everybody_counts_for_permits_that_were_made_when_the_numbers_were_used_up() {
        for ours in [i32::MAX, i32::MIN, -1] {
            for theirs in [0, i32::MAX - 1, i32::MAX, i32::MIN, -1] {
                let nodes = [(7, 1, true), (ours, 1, true), (theirs, 2, false)].map(permit_node);
                assert!(is_within(4, nodes.into_iter()), "{ours} beside {theirs}");
                assert!(!is_within(3, nodes.into_iter()), "{ours} beside {theirs}");
            }
        }
        let nodes = [(i32::MAX - 1, 1, true), (i32::MAX, 9, false), (i32::MIN, 9, false), (7, 1, false)];
        assert!(is_within(2, nodes.map(permit_node).into_iter()), "whoever came later counts");
    }

    #[test]
    fn a_node_that_may_have_taken_the_place_of_an_earlier_one_counts_whatever_its_number() {
        let moved = PermitNode { number: 9, permits: 2_300, may_have_moved: true, is_ours: false };
        let nodes = [permit_node((3, 700, true)), moved];
        assert!(is_within(3_000, nodes.into_iter()) && !is_within(2_999, nodes.into_iter()));
    }

    fn permit_node((number, permits, is_ours): (i32, u32, bool)) -> PermitNode {
        PermitNode { number, permits, may_have_moved: false, is_ours }
    }
}
