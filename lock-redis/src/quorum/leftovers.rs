//! The servers at which an attempt may have left an entry, over all of its rounds: no I/O, no clock.

use lock_core::driver::Grant;
use lock_core::{Error, Phase};

use super::NAME;
use super::tally::majority;

/// The servers at which an entry of one attempt may be, because a request was not answered or its undo not confirmed.
#[derive(Debug)]
pub(super) struct Leftovers {
    /// The number of all servers.
    count: usize,
    servers: Vec<usize>,
}

impl Leftovers {
    /// No entry at any of so many servers.
    pub(super) fn of(count: usize) -> Self {
        Self { count, servers: Vec::new() }
    }

    /// An entry may be at this server.
    pub(super) fn add(&mut self, server: usize) {
        if !self.servers.contains(&server) {
            self.servers.push(server);
        }
    }

    /// No entry is at this server.
    pub(super) fn remove(&mut self, server: usize) {
        self.servers.retain(|other| *other != server);
    }

    /// The outcome of the attempt. A refusal is told as unknown if entries may be at so many servers that others find no majority.
    pub(super) fn judge(&self, outcome: Result<Option<Grant>, Error>) -> Result<Option<Grant>, Error> {
        let (left, count) = (self.servers.len(), self.count);
        let cause = match outcome {
            Ok(None) => None,
            Err(error) if error.is_definite() => Some(error),
            unknown_or_granted => return unknown_or_granted,
        };
        if count - left >= majority(count) {
            return cause.map_or(Ok(None), Err);
        }
        let what = format!("this attempt may still hold the lock at {left} of {count} servers");
        let unknown = Error::indeterminate(Phase::Acquire, what).with_backend(NAME);
        Err(match cause {
            Some(cause) => unknown.with_source(cause),
            None => unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use lock_core::ErrorKind;

    use super::*;

    fn kind(leftovers: &Leftovers, outcome: Result<Option<Grant>, Error>) -> Option<ErrorKind> {
        leftovers.judge(outcome).err().map(|error| error.kind())
    }

    #[test]
    fn a_refusal_is_definite_while_others_find_a_majority() {
        let unavailable = || Err(Error::unavailable(Phase::Acquire, "too few servers"));
        let mut leftovers = Leftovers::of(3);
        leftovers.add(0);
        leftovers.add(0);
        assert_eq!(kind(&leftovers, Ok(None)), None);
        assert_eq!(kind(&leftovers, unavailable()), Some(ErrorKind::Unavailable));
        leftovers.add(2);
        assert_eq!(kind(&leftovers, Ok(None)), Some(ErrorKind::Indeterminate));
        let error = leftovers.judge(unavailable()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        assert!(std::error::Error::source(&error).expect("it has a cause").to_string().contains("too few servers"));
        leftovers.remove(0);
        assert_eq!(kind(&leftovers, Ok(None)), None);
    }
}
