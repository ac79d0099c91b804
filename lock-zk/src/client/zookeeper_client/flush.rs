//! The requests that are sent in one flush: a directory is listed once for all of them.
//!
//! Each who asks for a listing had asked before that was sent. Several places in one directory share a listing behind the last of them; the
//! only one has its own right behind it. A place whose batch is refused is made again later, and is listed by itself then.

use std::collections::HashMap;
use std::sync::Arc;

use super::waiting::{Append, List, Waiting};

/// The requests that are taken to be sent in one flush, in the order of their calls.
#[derive(Default)]
pub(super) struct Flush {
    requests: Vec<Waiting>,
    /// The index of the listing of each directory.
    listed: HashMap<Arc<str>, usize>,
    /// The index of the only place in each directory that is listed right behind it.
    listed_behind: HashMap<Arc<str>, usize>,
}

impl Flush {
    /// Returns the number of requests that one more request is: one less, if it lists what is listed already.
    pub(super) fn turns(&self, next: &Waiting) -> usize {
        let is_listed =
            |directory: &Arc<str>| self.listed.contains_key(directory) || self.listed_behind.contains_key(directory);
        let listing = match next {
            Waiting::List(list) => Some(list.path.clone()),
            Waiting::Append(append) => append.listing(),
            _ => None,
        };
        next.turns() - usize::from(listing.as_ref().is_some_and(is_listed))
    }

    /// Takes one more request.
    pub(super) fn take(&mut self, next: Waiting) {
        match next {
            Waiting::List(list) => self.list(list),
            Waiting::Append(append) => self.append(append),
            next => self.requests.push(next),
        }
    }

    /// Lists a directory for one more, or for the first one.
    fn list(&mut self, list: List) {
        self.share_listed_behind(&list.path);
        if let Some(index) = self.listed.get(&list.path)
            && let Some(Waiting::List(first)) = self.requests.get_mut(*index)
        {
            first.answers.extend(list.answers);
            return;
        }
        self.listed.insert(list.path.clone(), self.requests.len());
        self.requests.push(Waiting::List(list));
    }

    /// Makes a place: with a listing right behind it, if nobody else in this flush lists its directory.
    fn append(&mut self, mut append: Append) {
        if let Some(directory) = append.listing() {
            self.share_listed_behind(&directory);
            if !self.listed.contains_key(&directory) {
                self.listed_behind.insert(directory, self.requests.len());
            } else if let Some(list) = append.share() {
                self.list(list);
            }
        }
        self.requests.push(Waiting::Append(append));
    }

    /// Has the place that is listed right behind it share the flush's listing of its directory.
    fn share_listed_behind(&mut self, directory: &Arc<str>) {
        if let Some(index) = self.listed_behind.remove(directory)
            && let Some(Waiting::Append(append)) = self.requests.get_mut(index)
            && let Some(list) = append.share()
        {
            self.list(list);
        }
    }

    /// Returns all of them.
    pub(super) fn into_requests(self) -> Vec<Waiting> {
        self.requests
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::super::waiting::{ListedBehind, Place};
    use super::super::{Departure, Failure, Names};
    use super::*;

    #[test]
    fn a_directory_is_listed_once_in_a_flush_for_all_who_ask() {
        let list = |path: &str| {
            let (answer, answered) = oneshot::channel();
            (Waiting::List(List { path: path.into(), answers: vec![answer] }), answered)
        };
        let (mut flush, mut turns, mut answered) = (Flush::default(), Vec::new(), Vec::new());
        for path in ["/a", "/b", "/a", "/a"] {
            let (next, answer) = list(path);
            turns.push(flush.turns(&next));
            flush.take(next);
            answered.push(answer);
        }
        assert_eq!(turns, [1, 1, 0, 0]);
        let lists = flush.into_requests();
        assert_eq!(lists.iter().map(|list| list.part().path).collect::<Vec<_>>(), ["/a", "/b"]);
        drop(answered.remove(0));
        assert!(lists[0].is_wanted(), "two others wait for it");
        for list in lists {
            let Waiting::List(list) = list else { panic!("it is a listing") };
            let names = Names::new(vec![list.path.to_string()]);
            list.tell(Ok::<_, fn() -> Failure>(names));
        }
        let told = answered.into_iter().map(|mut answer| answer.try_recv().unwrap().unwrap()[0].clone());
        assert_eq!(told.collect::<Vec<_>>(), ["/b", "/a", "/a"]);
    }

    /// A place in this directory, which is to be listed behind it.
    fn append(directory: &str) -> (Waiting, oneshot::Receiver<Result<Names, Failure>>) {
        let ((created, _), (listed, is_listed)) = (oneshot::channel(), oneshot::channel());
        let (data, access, departure) = (Vec::new(), Arc::new([]), Departure::default());
        let place =
            Place { stem: String::new(), directory: directory.into(), data, access, access_bytes: 0, departure };
        let listed = Some(ListedBehind::new(listed));
        (Waiting::Append(Append { place: Arc::new(place), created, listed }), is_listed)
    }

    #[test]
    fn a_directory_is_listed_once_in_a_flush_for_all_places_in_it_and_right_behind_the_only_one() {
        let (mut flush, mut turns, mut answered) = (Flush::default(), Vec::new(), Vec::new());
        for path in ["/a", "/b", "/a", "/a"] {
            let (next, answer) = append(path);
            turns.push(flush.turns(&next));
            flush.take(next);
            answered.push(answer);
        }
        assert_eq!(turns, [2, 2, 1, 1]);
        let requests = flush.into_requests();
        assert_eq!(requests.iter().map(Waiting::turns).sum::<usize>(), 6, "four places and two listings");
        let (lists, requests): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|request| matches!(request, Waiting::List(_)));
        let [Waiting::List(list)] = <[_; 1]>::try_from(lists).ok().unwrap() else { panic!("it is a listing") };
        assert_eq!((&*list.path, list.answers.len()), ("/a", 3));
        let listed: Vec<_> = requests
            .iter()
            .map(|request| if let Waiting::Append(append) = request { append.listing() } else { None })
            .collect();
        assert_eq!(listed, [None, Some("/b".into()), None, None]);
        list.tell(Ok::<_, fn() -> Failure>(Names::new(vec!["all".to_owned()])));
        for request in requests {
            let Waiting::Append(append) = request else { panic!("it is a place") };
            append.into_parts().2.now_or_never().unwrap();
        }
        let told = answered.into_iter().map(|mut answer| answer.try_recv().ok().map(|told| told.unwrap()[0].clone()));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [Some("all".to_owned()), None, Some("all".to_owned()), Some("all".to_owned())]
        );
    }

    #[test]
    fn a_place_and_a_listing_of_its_directory_are_listed_together_whichever_was_asked_for_first() {
        for order in [[0, 1], [1, 0]] {
            let mut flush = Flush::default();
            let (answer, _answered) = oneshot::channel();
            let list = Waiting::List(List { path: "/a".into(), answers: vec![answer] });
            let (place, _listed) = append("/a");
            let mut asked = [Some(list), Some(place)];
            for index in order {
                flush.take(asked[index].take().unwrap());
            }
            let requests = flush.into_requests();
            assert_eq!(requests.iter().map(Waiting::turns).sum::<usize>(), 2);
        }
    }

    #[test]
    fn a_place_that_is_made_again_later_is_listed_by_itself() {
        let mut flush = Flush::default();
        let [(first, _one), (second, _two)] = [append("/a"), append("/a")];
        flush.take(first);
        flush.take(second);
        let appends = flush.into_requests().into_iter().filter_map(|request| match request {
            Waiting::Append(append) => Some(append.resent()),
            _ => None,
        });
        let listed: Vec<_> = appends.map(|append| append.listing()).collect();
        assert_eq!(listed, [Some("/a".into()), Some("/a".into())]);
    }
}
