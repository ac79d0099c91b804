//! The requests that wait for their turn, and which of them go together when it comes: decided without I/O.
//!
//! Requests of one kind go together, in this order: deletions; hand-overs and new places, with the listings that are wanted behind those;
//! requests that go by themselves; listings. So a listing is never older than what was asked for before it, and a place is never made
//! before a deletion that was asked for first. The exception is the deletion of what the same flush hands over: it goes behind the
//! hand-over. Nobody deletes a node before the answer to its making, or a listing behind that, has told its path.
//!
//! One transaction has one number, and the number is a token: two places in one directory never go together, and keep their order.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::oneshot;
use zookeeper_client::Acl;

use super::{Created, Departure, Failure, Names, NewNode};

/// The number of requests that go together, at most.
pub(super) const MOST_TOGETHER: usize = 64;

/// The bytes of paths and data that go together, at most: far below what servers take, and soon read. One that has more by itself goes
/// alone.
const MOST_BYTES_TOGETHER: usize = 64 * 1024;

/// A request that waits.
pub(super) enum Waiting {
    Append(Append),
    HandOver(HandOver),
    Delete(Delete),
    List(List),
    /// Asks the crate when it is polled first, if it is still to be sent then.
    Other(RequestFuture),
}

/// A request on its way, which tells its answers by itself.
pub(super) type RequestFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The way to tell an answer.
pub(super) type AnswerSender<T> = oneshot::Sender<Result<T, Failure>>;

/// The way to hear an answer.
type AnswerReceiver<T> = oneshot::Receiver<Result<T, Failure>>;

impl Waiting {
    /// Whether it is still to be sent: somebody waits for its answer, or it deletes something.
    pub(super) fn is_wanted(&self) -> bool {
        match self {
            Self::Append(append) => !append.created.is_closed(),
            Self::List(list) => list.answers.iter().any(|answer| !answer.is_closed()),
            Self::HandOver(_) | Self::Delete(_) | Self::Other(_) => true,
        }
    }

    /// Notes that it is about to be sent; false if it was given up.
    pub(super) fn leave(&self) -> bool {
        match self {
            Self::Append(append) => append.place.departure.leave(),
            _ => true,
        }
    }

    /// The number of requests of which it is one, or two. A batch is as many as its parts: it takes as long on a slow link.
    pub(super) fn turns(&self) -> usize {
        match self {
            Self::Append(append) => 1 + usize::from(append.listing().is_some()),
            _ => 1,
        }
    }

    /// Returns its part in a batch.
    pub(super) fn part(&self) -> Part<'_> {
        match self {
            Self::Append(Append { place, .. }) => {
                let bytes = place.stem.len() + place.directory.len() + place.data.len() + place.access_bytes;
                Part { kind: RequestKind::MoveOn, path: &place.directory, deletes: &[], bytes }
            }
            Self::HandOver(HandOver { exchange, .. }) => {
                let old = exchange.old.iter().chain(&exchange.place).map(String::len);
                let beside = exchange.data.len() + exchange.access_bytes;
                let new = exchange.new.iter().map(|new| new.path().len() + beside);
                let path = exchange.old.first().map_or("", String::as_str);
                Part { kind: RequestKind::MoveOn, path, deletes: &exchange.old, bytes: old.chain(new).sum() }
            }
            Self::Delete(Delete { path, .. }) => Part::of_path(RequestKind::Delete, path),
            Self::List(List { path, .. }) => Part::of_path(RequestKind::List, path),
            Self::Other(_) => Part::of_path(RequestKind::Other, ""),
        }
    }
}

/// A place at the end of a queue.
#[derive(Debug)]
pub(super) struct Place {
    /// The node's path without the number.
    pub(super) stem: String,
    /// The queue's directory.
    pub(super) directory: Arc<str>,
    pub(super) data: Vec<u8>,
    /// The rights to it, and the number of bytes that they take.
    pub(super) access: Arc<[Acl]>,
    pub(super) access_bytes: usize,
    pub(super) departure: Departure,
}

/// The making of a place, and the listing behind it if that is wanted.
pub(super) struct Append {
    pub(super) place: Arc<Place>,
    pub(super) created: AnswerSender<Created>,
    pub(super) listed: Option<ListedBehind>,
}

/// The listing behind a place.
pub(super) struct ListedBehind {
    answer: AnswerSender<Names>,
    /// The answer to the one listing of a flush for all of its places in the directory: none is asked for right behind this place then.
    shared: Option<AnswerReceiver<Names>>,
}

impl ListedBehind {
    /// A listing right behind the place.
    pub(super) fn new(answer: AnswerSender<Names>) -> Self {
        Self { answer, shared: None }
    }

    /// Tells what the flush's listing shows, if that is the one for this place.
    async fn tell_shared(self) {
        if let Some(shared) = self.shared
            && let Ok(listed) = shared.await
        {
            // Nobody may wait for it any more.
            let _ = self.answer.send(listed);
        }
    }
}

impl Append {
    /// Returns the directory to list right behind it, if there is one.
    pub(super) fn listing(&self) -> Option<Arc<str>> {
        self.listed.as_ref().filter(|listed| listed.shared.is_none()).map(|_| self.place.directory.clone())
    }

    /// Has it share the flush's listing of its directory, and returns its part in that.
    pub(super) fn share(&mut self) -> Option<List> {
        let path = self.listing()?;
        let (answer, shared) = oneshot::channel();
        self.listed.as_mut()?.shared = Some(shared);
        Some(List { path, answers: vec![answer] })
    }

    /// Has it listed by itself again: its place is made behind the flush's listing, which does not show it.
    pub(super) fn resent(mut self) -> Self {
        if let Some(listed) = &mut self.listed {
            listed.shared = None;
        }
        self
    }

    /// Returns how to tell of the place, the listing right behind it, and the end of the telling what another one shows.
    pub(super) fn into_parts(self) -> (AnswerSender<Created>, Option<List>, impl Future<Output = ()> + Send + use<>) {
        let path = self.listing();
        let (own, shared) = match (path, self.listed) {
            (Some(path), Some(listed)) => (Some(List { path, answers: vec![listed.answer] }), None),
            (_, listed) => (None, listed),
        };
        let told = async move {
            if let Some(shared) = shared {
                shared.tell_shared().await;
            }
        };
        (self.created, own, told)
    }
}

/// Nodes that come in the place of others.
#[derive(Debug)]
pub(super) struct Exchange {
    /// A node that has to be there, and stays.
    pub(super) present: Option<String>,
    pub(super) old: Vec<String>,
    /// One more that goes: the place in the queue of whoever gets the new ones.
    pub(super) place: Option<String>,
    pub(super) new: Vec<NewNode>,
    /// The data of the new ones.
    pub(super) data: Vec<u8>,
    /// The rights to them, and the number of bytes that they take for each.
    pub(super) access: Arc<[Acl]>,
    pub(super) access_bytes: usize,
}

/// The end of a hold, by which the next waiter becomes the holder.
pub(super) struct HandOver {
    pub(super) exchange: Arc<Exchange>,
    /// Told to whoever releases.
    pub(super) released: AnswerSender<()>,
    /// Told to whoever gets the new nodes, if there are any.
    pub(super) made: Option<AnswerSender<Vec<String>>>,
}

impl HandOver {
    /// Tells both of them.
    pub(super) fn tell(self, outcome: Result<Vec<String>, impl Fn() -> Failure>) {
        let released = outcome.as_ref().map(drop).map_err(|failure| failure());
        if let Some(made) = self.made {
            let _ = made.send(outcome.map_err(|failure| failure()));
        }
        let _ = self.released.send(released);
    }
}

/// Deletes a node.
pub(super) struct Delete {
    pub(super) path: Arc<str>,
    pub(super) answer: AnswerSender<bool>,
}

/// Lists a directory, once for everybody who asks.
pub(super) struct List {
    pub(super) path: Arc<str>,
    pub(super) answers: Vec<AnswerSender<Names>>,
}

impl List {
    /// Tells everybody.
    pub(super) fn tell(self, listed: Result<Names, impl Fn() -> Failure>) {
        for answer in self.answers {
            // Here and below: nobody may wait for it any more.
            let _ = answer.send(listed.as_ref().map(Arc::clone).map_err(|failure| failure()));
        }
    }
}

/// The kinds of requests, in the order of their sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestKind {
    /// Deletes a node.
    Delete,
    /// Moves a queue on: hands it over, or makes a place at its end and lists it behind that if it is wanted.
    MoveOn,
    /// Deletes a node that a hand-over of the same flush deletes, too.
    LateDelete,
    /// Goes by itself.
    Other,
    /// Lists a directory.
    List,
}

/// One request, as far as it matters for what it goes together with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) kind: RequestKind,
    /// The node that is deleted, or the directory: no two changes of one go together.
    pub(super) path: &'a str,
    /// The nodes of a holder that a hand-over deletes.
    pub(super) deletes: &'a [String],
    pub(super) bytes: usize,
}

impl<'a> Part<'a> {
    const fn of_path(kind: RequestKind, path: &'a str) -> Self {
        Self { kind, path, deletes: &[], bytes: path.len() }
    }
}

/// One batch: the indices of its parts.
#[derive(Debug, Default)]
struct Batch {
    parts: Vec<usize>,
    bytes: usize,
}

impl Batch {
    fn has_room_for(&self, part: &Part<'_>) -> bool {
        self.parts.len() < MOST_TOGETHER && self.bytes + part.bytes <= MOST_BYTES_TOGETHER
    }

    fn add(&mut self, index: usize, part: &Part<'_>) {
        self.parts.push(index);
        self.bytes += part.bytes;
    }
}

/// Returns the batches of these requests in the order of their sending, each by the indices of its parts. All of one batch are of
/// one kind.
pub(super) fn batches(parts: &[Part<'_>]) -> Vec<Vec<usize>> {
    // A release that was dropped deletes what it was to hand over: by then that is done.
    let handed_over: HashSet<_> = parts.iter().flat_map(|part| part.deletes).map(String::as_str).collect();
    let kind = |part: &Part<'_>| match part.kind {
        RequestKind::Delete if handed_over.contains(part.path) => RequestKind::LateDelete,
        kind => kind,
    };
    let parts: Vec<_> = parts.iter().map(|part| Part { kind: kind(part), ..*part }).collect();
    let kinds =
        [RequestKind::Delete, RequestKind::MoveOn, RequestKind::LateDelete, RequestKind::Other, RequestKind::List];
    kinds.into_iter().flat_map(|kind| batches_of(kind, &parts)).map(|batch| batch.parts).collect()
}

fn batches_of(kind: RequestKind, parts: &[Part<'_>]) -> Vec<Batch> {
    let mut batches = Vec::<Batch>::new();
    // By path: the first batch that a further one may join. It comes behind the one before it, whatever else has room.
    let mut next = HashMap::new();
    for (index, part) in parts.iter().enumerate().filter(|(_, part)| part.kind == kind) {
        let first = match kind {
            RequestKind::Delete | RequestKind::MoveOn | RequestKind::LateDelete => {
                next.get(part.path).copied().unwrap_or(0)
            }
            RequestKind::List => 0,
            RequestKind::Other => batches.len(),
        };
        let joined = (first..batches.len()).find(|batch| batches[*batch].has_room_for(part));
        let batch = joined.unwrap_or_else(|| {
            batches.push(Batch::default());
            batches.len() - 1
        });
        batches[batch].add(index, part);
        next.insert(part.path, batch + 1);
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(kind: RequestKind, path: &str) -> Part<'_> {
        Part { bytes: 100, ..Part::of_path(kind, path) }
    }

    #[test]
    fn deletions_go_first_and_listings_last() {
        let asked = [
            part(RequestKind::List, "/a"),
            part(RequestKind::MoveOn, "/a"),
            part(RequestKind::Other, ""),
            part(RequestKind::Delete, "/a/1"),
            part(RequestKind::MoveOn, "/b"),
            part(RequestKind::Other, ""),
            part(RequestKind::List, "/a"),
            part(RequestKind::Delete, "/b/1"),
        ];
        assert_eq!(batches(&asked), [vec![3, 7], vec![1, 4], vec![2], vec![5], vec![0, 6]]);
        assert!(batches(&[]).is_empty());
    }

    #[test]
    fn no_two_places_in_one_directory_go_together_and_each_comes_behind_the_one_before_it() {
        let asked = ["/a", "/b", "/a", "/a", "/b", "/c"].map(|path| part(RequestKind::MoveOn, path));
        assert_eq!(batches(&asked), [vec![0, 1, 5], vec![2, 4], vec![3]]);
        let twice = ["/a/1", "/a/2", "/a/1"].map(|path| part(RequestKind::Delete, path));
        assert_eq!(batches(&twice), [vec![0, 1], vec![2]], "the second one would be refused, and all with it");
    }

    #[test]
    fn a_place_never_overtakes_the_one_before_it_into_a_batch_that_has_room() {
        let half = MOST_BYTES_TOGETHER / 2 + 1;
        let of = |path, bytes| Part { bytes, ..Part::of_path(RequestKind::MoveOn, path) };
        let asked = [of("/a", half), of("/b", half), of("/b", 10), of("/c", 10)];
        assert_eq!(batches(&asked), [vec![0, 3], vec![1], vec![2]]);
    }

    #[test]
    fn a_hand_over_goes_with_the_place_of_the_one_before_and_two_of_one_node_do_not() {
        let asked = ["/a/1", "/a", "/a/1"].map(|path| part(RequestKind::MoveOn, path));
        assert_eq!(batches(&asked), [vec![0, 1], vec![2]]);
    }

    #[test]
    fn a_deletion_of_what_is_handed_over_goes_behind_that() {
        let deletes = ["/a/1", "/a/2"].map(str::to_owned);
        let hand_over = Part { deletes: &deletes, ..part(RequestKind::MoveOn, "/a/1") };
        let delete = |path| part(RequestKind::Delete, path);
        let asked = [hand_over, delete("/a/2"), delete("/a/1"), delete("/a/3"), part(RequestKind::Other, "")];
        assert_eq!(batches(&asked), [vec![3], vec![0], vec![1, 2], vec![4]]);
    }

    #[test]
    fn a_batch_has_bounds() {
        let names: Vec<_> = (0..MOST_TOGETHER + 1).map(|number| format!("/{number}")).collect();
        for kind in [RequestKind::Delete, RequestKind::MoveOn, RequestKind::List] {
            let many: Vec<_> = names.iter().map(|name| part(kind, name)).collect();
            let lengths: Vec<_> = batches(&many).iter().map(Vec::len).collect();
            assert_eq!(lengths, [MOST_TOGETHER, 1]);
        }
        let long = |path| Part { bytes: MOST_BYTES_TOGETHER + 1, ..Part::of_path(RequestKind::MoveOn, path) };
        assert_eq!(batches(&[long("/a"), part(RequestKind::MoveOn, "/b"), long("/c")]), [vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn the_rights_to_each_new_node_count() {
        let (created, _) = oneshot::channel();
        let (stem, directory, data) = ("/a/b".to_owned(), "/a".into(), vec![0; 100]);
        let place =
            Place { stem, directory, data, access: [].into(), access_bytes: 8000, departure: Departure::default() };
        let append = Waiting::Append(Append { place: Arc::new(place), created, listed: None });
        assert_eq!(append.part().bytes, 4 + 2 + 100 + 8000);
        let ((released, _), new) = (oneshot::channel(), vec![NewNode::Sequential("/new".to_owned()); 3]);
        let (old, place, data) = (vec!["/old".to_owned()], Some("/place".to_owned()), vec![0; 100]);
        let exchange = Exchange { present: None, old, place, new, data, access: [].into(), access_bytes: 8000 };
        let hand_over = Waiting::HandOver(HandOver { exchange: Arc::new(exchange), released, made: None });
        assert_eq!(hand_over.part().bytes, 4 + 6 + 3 * (4 + 100 + 8000));
    }

    #[test]
    fn every_request_is_in_one_batch() {
        let kinds = [RequestKind::List, RequestKind::MoveOn, RequestKind::Delete, RequestKind::Other];
        let names: Vec<_> = (0..7).map(|number| format!("/{number}")).collect();
        let many: Vec<_> = (0..500).map(|number| part(kinds[number % 4], &names[number % 7])).collect();
        let mut sent: Vec<_> = batches(&many).into_iter().flatten().collect();
        sent.sort_unstable();
        assert_eq!(sent, (0..500).collect::<Vec<_>>());
    }
}
