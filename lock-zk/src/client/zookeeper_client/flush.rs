//! The requests that are sent in one flush: a directory is listed once for all of them.

use std::collections::HashMap;
use std::sync::Arc;

use super::waiting::Waiting;

/// The requests that are taken to be sent in one flush, in the order of their calls.
#[derive(Default)]
pub(super) struct Flush {
    requests: Vec<Waiting>,
    /// The index of the listing of each directory.
    listed: HashMap<Arc<str>, usize>,
}

impl Flush {
    /// Returns the number of requests that one more request is: none, if it lists what is listed already.
    pub(super) fn turns(&self, next: &Waiting) -> usize {
        match next {
            Waiting::List(list) if self.listed.contains_key(&list.path) => 0,
            next => next.turns(),
        }
    }

    /// Takes one more request.
    pub(super) fn take(&mut self, next: Waiting) {
        if let Waiting::List(list) = &next {
            let index = *self.listed.entry(list.path.clone()).or_insert(self.requests.len());
            if let Some(Waiting::List(first)) = self.requests.get_mut(index) {
                if let Waiting::List(list) = next {
                    first.answers.extend(list.answers);
                }
                return;
            }
        }
        self.requests.push(next);
    }

    /// Returns all of them.
    pub(super) fn into_requests(self) -> Vec<Waiting> {
        self.requests
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::super::waiting::List;
    use super::super::{Failure, Names};
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
}
