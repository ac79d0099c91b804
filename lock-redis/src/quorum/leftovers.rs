//! What an attempt may have left over all of its rounds: no I/O, no clock.

use lock_core::driver::Grant;
use lock_core::{Error, Phase};

use super::NAME;
use super::tally::majority;

/// The servers at which an entry of one attempt may be, because a request was not answered or its undo not confirmed.
#[derive(Debug, Default)]
pub(super) struct Leftovers(Vec<usize>);

impl Leftovers {
    /// An entry may be at this server.
    pub(super) fn add(&mut self, place: usize) {
        if !self.0.contains(&place) {
            self.0.push(place);
        }
    }

    /// No entry is at this server.
    pub(super) fn remove(&mut self, place: usize) {
        self.0.retain(|other| *other != place);
    }

    /// The outcome of the attempt. A refusal is told as unknown if entries may be at so many servers that others find no majority.
    pub(super) fn judge(&self, servers: usize, outcome: Result<Option<Grant>, Error>) -> Result<Option<Grant>, Error> {
        let is_definite = match &outcome {
            Ok(granted) => granted.is_none(),
            Err(error) => error.is_definite(),
        };
        if !is_definite || servers - self.0.len() >= majority(servers) {
            return outcome;
        }
        let what = format!("an earlier round may have left the lock taken at {} of {servers} servers", self.0.len());
        let unknown = Error::indeterminate(Phase::Acquire, what).with_backend(NAME);
        Err(match outcome {
            Err(error) => unknown.with_source(error),
            Ok(_) => unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use lock_core::ErrorKind;

    use super::*;

    fn kind(leftovers: &Leftovers, outcome: Result<Option<Grant>, Error>) -> Option<ErrorKind> {
        leftovers.judge(3, outcome).err().map(|error| error.kind())
    }

    #[test]
    fn a_refusal_is_definite_while_others_find_a_majority() {
        let unavailable = || Err(Error::unavailable(Phase::Acquire, "too few servers"));
        let mut leftovers = Leftovers::default();
        leftovers.add(0);
        leftovers.add(0);
        assert_eq!(kind(&leftovers, Ok(None)), None);
        assert_eq!(kind(&leftovers, unavailable()), Some(ErrorKind::Unavailable));
        leftovers.add(2);
        assert_eq!(kind(&leftovers, Ok(None)), Some(ErrorKind::Indeterminate));
        let error = leftovers.judge(3, unavailable()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        assert!(std::error::Error::source(&error).expect("it has a cause").to_string().contains("too few servers"));
        leftovers.remove(0);
        assert_eq!(kind(&leftovers, Ok(None)), None);
    }
}
