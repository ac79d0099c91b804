//! One attempt's place in a queue, decided without I/O: which request is next, whose node is waited for, and when the attempt is
//! first.
//!
//! Its driver makes the requests, and tells what came of them. It knows one thing only: its own node, or that it has none.

use std::sync::Arc;

use lock_core::clock::BootInstant;

use crate::store::node::Role;

/// One node of a listing.
pub trait Member<N>: Clone {
    /// Returns the role of whoever made it.
    fn role(&self) -> Role;

    /// Whether it is this node.
    fn is_node(&self, node: &N) -> bool;

    /// Returns the index of this node in a queue, the first of which is first.
    fn position(queue: &[Self], node: &N) -> Option<usize> {
        queue.iter().position(|member| member.is_node(node))
    }
}

/// A queue, the first of which is first, as one listing shows it to everybody who has asked for it.
#[derive(Debug)]
pub struct ListedQueue<M> {
    members: Vec<M>,
    /// The indices of its writers, in order: thousands of readers would otherwise look for theirs among each other.
    writers: Vec<usize>,
}

impl<M> ListedQueue<M> {
    /// The queue of these members.
    pub fn new<N>(members: Vec<M>) -> Self
    where
        M: Member<N>,
    {
        let indices = members.iter().enumerate().filter(|(_, member)| member.role() == Role::Write);
        let writers = indices.map(|(index, _)| index).collect();
        Self { members, writers }
    }

    /// Returns its members.
    #[must_use]
    pub fn members(&self) -> &[M] {
        &self.members
    }

    /// Returns the index of the one for which the one at this index waits; `None` if it is granted.
    ///
    /// Only the nearest that matters is watched, so that a release wakes one: a mutex and a writer wait for whoever is
    /// before them, a reader for the nearest writer before it.
    pub(crate) fn waits_for<N>(&self, index: usize) -> Option<usize>
    where
        M: Member<N>,
    {
        match self.members[index].role() {
            Role::Lock | Role::Write => index.checked_sub(1),
            Role::Read => {
                let before = self.writers.partition_point(|writer| *writer < index);
                self.writers[..before].last().copied()
            }
            Role::Permit => None,
        }
    }
}

/// The way to a place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// At its end.
    Append,
    /// Without a queue: the first claim wins while nobody holds the lock or waits in the queue. A refused attempt waits for the node that
    /// is in the way; then all of them claim again.
    Claim,
}

/// A request that an attempt needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request {
    /// Makes a node at the end of the queue, and lists the queue right behind it, or behind the answer if a node of this process may be the
    /// one before.
    Append,
    /// Makes a node if the queue is empty.
    Claim,
    /// Makes the directory of the queue.
    MakeDirectory,
    /// Searches, behind a `sync`, for a node of this attempt and this session.
    Find,
    /// Lists the queue. The listing right behind a creation is on its way already.
    List,
}

/// The position of an attempt in its queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum QueuePosition<M> {
    /// Nobody that matters is before the attempt, by a request that was sent at this instant.
    First(BootInstant),
    /// This node is to go first.
    Behind(M),
    /// The attempt has no node, or one that is not listed.
    Missing,
}

/// The answers to requests, and what else happens to an attempt.
#[derive(Debug, Clone)]
pub enum Event<N, M> {
    /// The attempt begins, or a session has taken the place of one that is over.
    Begin,
    /// The attempt's node was made, by a request that was sent at this instant.
    Created(N, BootInstant),
    /// This node of this process has the number before the attempt's, and is there as far as this client knows.
    Follows(M),
    /// No node was made, since there is no directory.
    NoDirectory,
    /// The directory was made.
    DirectoryMade,
    /// A claim was refused: somebody is in the queue.
    Taken,
    /// The queue, as it was listed by a request that was sent at this instant. Empty if there is no directory.
    Listed(Arc<ListedQueue<M>>, BootInstant),
    /// The node that was searched for, if there is one.
    Found(Option<N>),
    /// The answer to the last request is lost: it may have been carried out.
    Unanswered,
    /// The node that is waited for may have gone, or the watch on it is lost; or a grant was in vain.
    Look,
    /// The node that is waited for was deleted provided that our node was there, by a request that was sent at this instant.
    HandedOver(BootInstant),
    /// The attempt's node was taken away by this client itself.
    Withdrawn,
    /// The attempt wants a place although it has lost its node.
    Rejoin,
}

/// The next step of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action<M> {
    /// Makes this request, and tells its answer.
    Ask(Request),
    /// Requests have said as much as they can.
    Stand(QueuePosition<M>),
}

/// One attempt that contends for a lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Contention<N> {
    way: Way,
    node: Option<N>,
}

impl<N> Contention<N> {
    /// An attempt that has asked for nothing yet.
    #[must_use]
    pub const fn new(way: Way) -> Self {
        Self { way, node: None }
    }

    /// Returns its node, as far as it knows.
    #[must_use]
    pub const fn node(&self) -> Option<&N> {
        self.node.as_ref()
    }

    /// Takes what happened, and returns what is to be done.
    #[inline]
    pub fn step<M: Member<N>>(&mut self, event: Event<N, M>) -> Action<M> {
        match event {
            // A node of a session that is over is no node of ours.
            Event::Begin => {
                self.node = None;
                self.enqueue()
            }
            Event::Created(node, sent_at) => {
                self.node = Some(node);
                match self.way {
                    Way::Append => Action::Ask(Request::List),
                    Way::Claim => Action::Stand(QueuePosition::First(sent_at)),
                }
            }
            Event::Follows(before) => Action::Stand(QueuePosition::Behind(before)),
            Event::NoDirectory => Action::Ask(Request::MakeDirectory),
            Event::DirectoryMade => self.enqueue(),
            Event::Taken => Action::Ask(Request::List),
            Event::Listed(queue, sent_at) => self.listed(&queue, sent_at),
            Event::Found(node) => {
                self.node = node;
                if self.node.is_some() { Action::Ask(Request::List) } else { self.enqueue() }
            }
            // News may save a wait, never make a grant.
            Event::Look | Event::Unanswered if self.node.is_some() => Action::Ask(Request::List),
            // Without a node something may have made one all the same.
            Event::Unanswered => Action::Ask(Request::Find),
            Event::Look => Action::Stand(QueuePosition::Missing),
            Event::HandedOver(sent_at) => Action::Stand(QueuePosition::First(sent_at)),
            Event::Withdrawn => {
                self.node = None;
                Action::Stand(QueuePosition::Missing)
            }
            // The server that has listed may lag behind: what it does not know yet is searched for.
            Event::Rejoin => {
                if self.node.take().is_some() {
                    Action::Ask(Request::Find)
                } else {
                    self.enqueue()
                }
            }
        }
    }

    fn enqueue<M>(&self) -> Action<M> {
        Action::Ask(match self.way {
            Way::Append => Request::Append,
            Way::Claim => Request::Claim,
        })
    }

    /// Decides what a listing means: a node is first, or waits for another one. A claim that was refused waits for whoever is
    /// first.
    fn listed<M: Member<N>>(&self, queue: &ListedQueue<M>, sent_at: BootInstant) -> Action<M> {
        let members = queue.members();
        let awaited = match &self.node {
            None if members.is_empty() => return self.enqueue(),
            None => Some(0),
            Some(node) => match M::position(members, node) {
                Some(index) => queue.waits_for(index),
                None => return Action::Stand(QueuePosition::Missing),
            },
        };
        Action::Stand(match awaited {
            Some(index) => QueuePosition::Behind(members[index].clone()),
            None => QueuePosition::First(sent_at),
        })
    }
}

/// Whether each node of a queue is granted, as [`ListedQueue::waits_for`] says, by one look at each.
pub(crate) fn are_granted<N, M: Member<N>>(queue: &[M]) -> Vec<bool> {
    let mut is_behind_writer = false;
    let is_granted = |(index, member): (usize, &M)| {
        let role = member.role();
        let is_granted = match role {
            Role::Lock | Role::Write => index == 0,
            Role::Read => !is_behind_writer,
            Role::Permit => true,
        };
        is_behind_writer |= role == Role::Write;
        is_granted
    };
    queue.iter().enumerate().map(is_granted).collect()
}

/// Returns the index of a node in a queue that is sorted by this order, where the node has this place. Few of a queue are looked at, whatever
/// its length.
pub(crate) fn position_by<N, M: Member<N>, O: Ord>(
    queue: &[M],
    node: &N,
    place: &O,
    order: impl Fn(&M) -> O,
) -> Option<usize> {
    let first = queue.partition_point(|member| order(member) < *place);
    let mut alike = queue[first..].iter().take_while(|member| order(member) == *place);
    alike.position(|member| member.is_node(node)).map(|index| first + index)
}

/// Whether a node in this role waits for the one right before it, which is in that role.
pub(crate) fn waits_for_neighbour(role: Role, before: Role) -> bool {
    role != Role::Read || before == Role::Write
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    type Node = (u8, Role);

    thread_local! {
        static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
    }

    /// A node by its number, which counts how often one is looked at.
    #[derive(Debug, Clone, Copy)]
    struct Counted(usize, Role);

    impl Member<usize> for Counted {
        fn role(&self) -> Role {
            LOOKED_AT.set(LOOKED_AT.get() + 1);
            self.1
        }

        fn is_node(&self, node: &usize) -> bool {
            LOOKED_AT.set(LOOKED_AT.get() + 1);
            self.0 == *node
        }

        fn position(queue: &[Self], node: &usize) -> Option<usize> {
            position_by(queue, node, node, |member| {
                LOOKED_AT.set(LOOKED_AT.get() + 1);
                member.0
            })
        }
    }

    /// Returns how often a node was looked at, for each of so many.
    fn looks_for_each_of(many: usize, work: impl FnOnce()) -> usize {
        let before = LOOKED_AT.get();
        work();
        (LOOKED_AT.get() - before) / many
    }

    #[test]
    fn each_of_ten_thousand_readers_is_looked_at_a_few_times_whether_they_are_granted_or_look_for_themselves() {
        const MANY: usize = 10_000;
        let queue: Vec<_> = (0..MANY).map(|number| Counted(number, Role::Read)).collect();
        let looks = looks_for_each_of(MANY, || assert!(are_granted(&queue).into_iter().all(|is_granted| is_granted)));
        assert!(looks <= 2, "each was looked at {looks} times to see who is granted");
        let looks = looks_for_each_of(MANY, || {
            assert!((0..MANY).all(|number| Counted::position(&queue, &number) == Some(number)));
        });
        assert!(looks <= 30, "each looked at {looks} for its own");
        for writer in [None, Some(0), Some(MANY / 2)] {
            let role = |number| if Some(number) == writer { Role::Write } else { Role::Read };
            let queue = (0..MANY).map(|number| Counted(number, role(number))).collect();
            let looks = looks_for_each_of(MANY, || {
                let listed = Event::Listed(Arc::new(ListedQueue::new(queue)), SENT);
                for number in (0..MANY).filter(|number| Some(*number) != writer) {
                    let mut contention = Contention { way: Way::Append, node: Some(number) };
                    let awaited = match contention.step(listed.clone()) {
                        Action::Stand(QueuePosition::Behind(awaited)) => Some(awaited.0),
                        Action::Stand(QueuePosition::First(_)) => None,
                        other => panic!("{other:?}"),
                    };
                    assert_eq!(awaited, writer.filter(|writer| *writer < number), "for {number} behind {writer:?}");
                }
            });
            assert!(looks <= 40, "each looked at {looks} to see for whom it waits behind {writer:?}");
        }
    }

    #[test]
    fn a_node_is_found_among_others_of_its_number_or_not_at_all() {
        let queue: [Node; 4] = [(1, Role::Lock), (2, Role::Lock), (3, Role::Lock), (5, Role::Lock)];
        let found = |node: u8, place: u8| position_by(&queue, &node, &place, |member| member.0.min(2));
        assert_eq!([found(1, 1), found(3, 2), found(4, 2), found(1, 2)], [Some(0), Some(2), None, None]);
    }

    impl Member<u8> for Node {
        fn role(&self) -> Role {
            self.1
        }

        fn is_node(&self, node: &u8) -> bool {
            self.0 == *node
        }
    }

    const SENT: BootInstant = BootInstant::from_origin(Duration::from_secs(7));
    const FIRST: Action<Node> = Action::Stand(QueuePosition::First(SENT));
    const MISSING: Action<Node> = Action::Stand(QueuePosition::Missing);

    fn step(contention: &mut Contention<u8>, event: Event<u8, Node>) -> Action<Node> {
        contention.step(event)
    }

    fn listed<const MANY: usize>(queue: [Node; MANY]) -> Event<u8, Node> {
        Event::Listed(Arc::new(ListedQueue::new(queue.to_vec())), SENT)
    }

    /// An attempt that has made the node 5.
    fn placed(way: Way) -> Contention<u8> {
        let mut contention = Contention::new(way);
        let _ = step(&mut contention, Event::Begin);
        let _ = step(&mut contention, Event::Created(5, SENT));
        contention
    }

    #[test]
    fn whoever_follows_a_node_of_its_process_waits_for_that_without_a_listing() {
        let mut contention = placed(Way::Append);
        assert_eq!(
            step(&mut contention, Event::Follows((4, Role::Lock))),
            Action::Stand(QueuePosition::Behind((4, Role::Lock)))
        );
        assert_eq!(step(&mut contention, Event::Look), Action::Ask(Request::List));
    }

    #[test]
    fn only_a_reader_behind_another_reader_does_not_wait_for_the_node_right_before_its_own() {
        let (roles, waits) =
            ([Role::Lock, Role::Read, Role::Write], |(role, before)| waits_for_neighbour(role, before));
        let pairs = roles.into_iter().flat_map(|role| roles.map(|before| (role, before)));
        assert_eq!(
            pairs.clone().filter(|pair| !waits(*pair)).collect::<Vec<_>>(),
            [(Role::Read, Role::Lock), (Role::Read, Role::Read)]
        );
        // So says the whole queue.
        for (role, before) in pairs {
            let queue = ListedQueue::new(vec![(1, before), (2, role)]);
            assert_eq!(queue.waits_for(1).is_some(), waits((role, before)), "{role:?} behind {before:?}");
        }
    }

    /// The position of the node 5 behind others of these roles.
    fn behind(others: &[Node], role: Role) -> Action<Node> {
        let queue = others.iter().copied().chain([(5, role), (6, Role::Write)]).collect();
        step(&mut placed(Way::Append), Event::Listed(Arc::new(ListedQueue::new(queue)), SENT))
    }

    #[test]
    fn a_mutex_and_a_writer_wait_for_the_node_right_before_theirs() {
        assert_eq!(behind(&[], Role::Lock), FIRST);
        let awaited = |node| Action::Stand(QueuePosition::Behind(node));
        assert_eq!(behind(&[(1, Role::Lock), (2, Role::Lock)], Role::Lock), awaited((2, Role::Lock)));
        assert_eq!(behind(&[(1, Role::Write), (2, Role::Read)], Role::Write), awaited((2, Role::Read)));
    }

    #[test]
    fn a_reader_waits_for_the_nearest_writer_before_it() {
        let queue = [(1, Role::Write), (2, Role::Write), (3, Role::Read)];
        assert_eq!(behind(&queue, Role::Read), Action::Stand(QueuePosition::Behind((2, Role::Write))));
        assert_eq!(behind(&queue[2..], Role::Read), FIRST);
        assert_eq!(behind(&queue, Role::Permit), FIRST, "permits are in no order");
    }

    #[test]
    fn a_node_that_is_not_listed_is_searched_for_before_another_is_made() {
        let mut contention = placed(Way::Append);
        assert_eq!(step(&mut contention, listed([(1, Role::Lock)])), MISSING);
        assert_eq!(step(&mut contention, Event::Rejoin), Action::Ask(Request::Find));
        assert_eq!(step(&mut contention.clone(), Event::Found(Some(8))), Action::Ask(Request::List));
        assert_eq!(step(&mut contention, Event::Found(None)), Action::Ask(Request::Append));
        assert_eq!(contention.node(), None);
    }

    #[test]
    fn an_answer_that_is_lost_has_a_node_searched_for_until_it_is_known() {
        let mut contention = Contention::new(Way::Append);
        assert_eq!(step(&mut contention, Event::Begin), Action::Ask(Request::Append));
        for _ in 0..2 {
            assert_eq!(step(&mut contention, Event::Unanswered), Action::Ask(Request::Find));
        }
        assert_eq!(step(&mut contention, Event::Found(Some(5))), Action::Ask(Request::List));
        assert_eq!(step(&mut contention, Event::Unanswered), Action::Ask(Request::List));
        assert_eq!(contention.node(), Some(&5));
    }

    #[test]
    fn a_directory_that_is_missing_is_made_first() {
        let mut contention = Contention::new(Way::Append);
        let _ = step(&mut contention, Event::Begin);
        assert_eq!(step(&mut contention, Event::NoDirectory), Action::Ask(Request::MakeDirectory));
        assert_eq!(step(&mut contention, Event::DirectoryMade), Action::Ask(Request::Append));
        assert_eq!(step(&mut contention, Event::Created(5, SENT)), Action::Ask(Request::List));
        assert_eq!(step(&mut contention, listed([])), MISSING, "it was deleted again");
    }

    #[test]
    fn news_make_no_grant_but_a_hand_over_does() {
        let mut contention = placed(Way::Append);
        assert_eq!(step(&mut contention, Event::Look), Action::Ask(Request::List));
        assert_eq!(step(&mut contention, Event::HandedOver(SENT)), FIRST);
    }

    #[test]
    fn a_session_begins_without_a_node() {
        let mut contention = placed(Way::Append);
        assert_eq!(step(&mut contention, Event::Begin), Action::Ask(Request::Append));
        assert_eq!(contention.node(), None);
        let mut contention = placed(Way::Append);
        assert_eq!(step(&mut contention, Event::Withdrawn), MISSING);
        assert_eq!(step(&mut contention, Event::Look), MISSING);
        assert_eq!(step(&mut contention, Event::Rejoin), Action::Ask(Request::Append), "it is known to be gone");
    }

    #[test]
    fn a_claim_waits_for_whoever_is_first_and_claims_again() {
        let mut contention = Contention::new(Way::Claim);
        assert_eq!(step(&mut contention, Event::Begin), Action::Ask(Request::Claim));
        assert_eq!(step(&mut contention, Event::Taken), Action::Ask(Request::List));
        assert_eq!(step(&mut contention, listed([])), Action::Ask(Request::Claim));
        let queue = [(1, Role::Lock), (2, Role::Lock)];
        let awaited = Action::Stand(QueuePosition::Behind((1, Role::Lock)));
        assert_eq!(step(&mut contention, listed(queue)), awaited);
        assert_eq!(step(&mut contention, Event::Look), MISSING);
        assert_eq!(step(&mut contention, Event::Rejoin), Action::Ask(Request::Claim));
        assert_eq!(step(&mut contention, Event::Created(5, SENT)), FIRST);
    }
}
