//! The votes on one round, as they come in: no I/O, no clock.

use std::time::Duration;

use lock_core::Error;

use super::member::ScriptVote;
use super::tally::{Tally, Vote, VoteState};
use crate::client::link::request::Failed;

/// The votes on one round so far.
#[derive(Debug)]
pub(super) struct Votes {
    tally: Tally,
    /// The servers that have granted it.
    pub(super) granted: Vec<usize>,
    /// The servers where somebody else has it.
    pub(super) refused: Vec<usize>,
    /// The servers that have not carried the request out, and will not.
    failed: Vec<usize>,
    /// The shortest time after which it may be free at one of those that have refused it.
    pub(super) ends_in: Option<Duration>,
    /// The reasons why the others did not answer.
    pub(super) reasons: Vec<Error>,
}

impl Votes {
    /// A vote of so many servers, each of which has been asked.
    pub(super) fn of(servers: usize) -> Self {
        Self {
            tally: Tally::of(servers),
            granted: Vec::new(),
            refused: Vec::new(),
            failed: Vec::new(),
            ends_in: None,
            reasons: Vec::new(),
        }
    }

    pub(super) fn verdict(&self) -> VoteState {
        self.tally.verdict()
    }

    /// The servers at which the request may leave an entry: those that have granted it, and those that may have carried it out,
    /// or will, without an answer so far.
    pub(super) fn may_leave(&self) -> impl Iterator<Item = usize> {
        (0..self.tally.servers()).filter(|server| !self.refused.contains(server) && !self.failed.contains(server))
    }

    /// Takes the answer of the server of this number.
    pub(super) fn count(&mut self, server: usize, answer: Result<ScriptVote, Failed>) {
        self.tally.count(match answer {
            Ok(ScriptVote { yes: true, .. }) => {
                self.granted.push(server);
                Vote::Granted
            }
            Ok(ScriptVote { yes: false, rest }) => {
                self.refused.push(server);
                let (ends_in, holder) = held(&rest);
                self.ends_in = self.ends_in.into_iter().chain(ends_in).min();
                Vote::Held(holder.to_owned())
            }
            Err(failed) => {
                if failed.error.is_definite() {
                    self.failed.push(server);
                }
                self.reasons.push(failed.error);
                Vote::Failed
            }
        });
    }
}

/// Reads `<ms until it ends>:<holder>`. A key without an end says -1.
fn held(rest: &str) -> (Option<Duration>, &str) {
    let (ends_in, holder) = rest.split_once(':').unwrap_or(("", rest));
    (ends_in.parse().ok().map(Duration::from_millis), holder)
}

#[cfg(test)]
mod tests {
    use lock_core::Phase;
    use redis::Value;

    use super::*;
    use crate::error::RequestFate;
    use crate::quorum::member;

    fn said(yes: bool, rest: &str) -> Result<ScriptVote, Failed> {
        Ok(ScriptVote { yes, rest: rest.to_owned() })
    }

    fn failed(error: Error) -> Result<ScriptVote, Failed> {
        Err(Failed { fate: RequestFate::Unknown, error, wrong_type: false })
    }

    #[test]
    fn a_server_that_has_not_answered_when_the_vote_is_over_may_have_granted_it() {
        let mut votes = Votes::of(5);
        let may_leave = |votes: &Votes| votes.may_leave().collect::<Vec<_>>();
        assert_eq!(may_leave(&votes), [0, 1, 2, 3, 4]);
        votes.count(3, said(true, ""));
        votes.count(0, failed(Error::unavailable(Phase::Acquire, "not sent")));
        votes.count(2, failed(Error::indeterminate(Phase::Acquire, "sent")));
        votes.count(1, failed(Error::unavailable(Phase::Acquire, "not sent")));
        assert_eq!((&*votes.granted, &*may_leave(&votes)), (&[3][..], &[2, 3, 4][..]));
        let mut votes = Votes::of(5);
        (0..3).for_each(|server| votes.count(server, said(false, "9:a")));
        assert_eq!((votes.verdict(), may_leave(&votes)), (VoteState::Held, vec![3, 4]));
    }

    #[test]
    fn it_may_be_free_when_the_first_holder_s_lease_ends() {
        let mut votes = Votes::of(3);
        votes.count(0, said(false, "-1:a"));
        assert_eq!(votes.ends_in, None);
        votes.count(1, said(false, "70:b"));
        votes.count(2, said(false, "90:b"));
        assert_eq!((votes.ends_in, votes.verdict()), (Some(Duration::from_millis(70)), VoteState::Held));
    }

    #[test]
    fn a_vote_from_outside_is_of_its_request_or_refused() {
        let samples =
            ["abc+", "abc+17", "abc-", "abc-70:0123", "abc--1:xy", "abc-:", "abc-18446744073709551615:a:b", "abd+"];
        let samples: Vec<_> = samples.iter().map(|sample| sample.as_bytes()).collect();
        lock_testkit::fuzz::bytes("votes of a quorum's servers", &samples, |bytes| {
            let Some(vote) = member::said(Value::BulkString(bytes.to_owned()), "abc") else {
                assert!(!bytes.starts_with(b"abc+") && !bytes.starts_with(b"abc-"));
                return;
            };
            let sign = if vote.yes { "+" } else { "-" };
            let again = ["abc", sign, &vote.rest].concat();
            assert_eq!(again, String::from_utf8_lossy(bytes));
            let (ends_in, holder) = held(&vote.rest);
            assert!(vote.rest.ends_with(holder));
            let mut votes = Votes::of(3);
            votes.count(1, Ok(vote.clone()));
            let (granted, refused): (&[_], &[_]) = if vote.yes { (&[1], &[]) } else { (&[], &[1]) };
            assert_eq!((&*votes.granted, &*votes.refused), (granted, refused));
            assert!(votes.may_leave().eq((0..3).filter(|server| vote.yes || *server != 1)));
            assert_eq!(votes.ends_in, ends_in.filter(|_| !vote.yes));
        });
    }
}
