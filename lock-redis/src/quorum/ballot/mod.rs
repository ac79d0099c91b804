//! The votes of the servers, counted: no I/O, no clock. They say who has a lock, and at which servers an attempt may have left an
//! entry.

use std::collections::HashMap;
use std::time::Duration;

use lock_core::driver::Grant;
use lock_core::{Error, Phase};
use redis::Value;

use super::NAME;
use crate::client::link::request::Failed;

/// The number of servers that is more than half of so many: any two majorities share a server.
pub(super) const fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

/// The votes on one round so far.
#[derive(Debug)]
pub(super) struct Ballot {
    /// The number of servers, each of which has been asked.
    servers: usize,
    /// The servers that have granted it.
    pub(super) granted: Vec<usize>,
    /// The servers where somebody else has it.
    pub(super) refused: Vec<usize>,
    /// The number of servers that each holder has. It is known by the beginning of what they hold, which is another one for every grant.
    held: HashMap<String, usize>,
    /// The shortest time after which it may be free at one of those that have refused it.
    pub(super) ends_in: Option<Duration>,
    /// The number of servers that gave no answer, or one that says nothing.
    failed: usize,
    /// Those among them that have not carried the request out, and will not.
    uninvolved: Vec<usize>,
    /// The reasons why the others did not answer.
    pub(super) reasons: Vec<Error>,
}

/// The state of the vote so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VoteState {
    /// Further votes may decide.
    Open,
    /// A majority granted it.
    Granted,
    /// Somebody else has a majority.
    Held,
    /// Somebody else may have one with the servers that do not answer.
    MayBeHeld,
    /// Nobody has a majority, and nobody can get one without a release first.
    Split,
    /// Too few servers answer.
    Failed,
}

impl Ballot {
    /// A vote of so many servers, each of which has been asked.
    pub(super) fn of(servers: usize) -> Self {
        Self {
            servers,
            granted: Vec::new(),
            refused: Vec::new(),
            held: HashMap::new(),
            ends_in: None,
            failed: 0,
            uninvolved: Vec::new(),
            reasons: Vec::new(),
        }
    }

    /// Takes the answer of the server of this number.
    pub(super) fn count(&mut self, server: usize, answer: Result<ScriptVote, Failed>) {
        match answer {
            Ok(ScriptVote { yes: true, .. }) => self.granted.push(server),
            Ok(ScriptVote { yes: false, rest }) => {
                self.refused.push(server);
                let (ends_in, holder) = held(&rest);
                self.ends_in = self.ends_in.into_iter().chain(ends_in).min();
                *self.held.entry(holder.to_owned()).or_default() += 1;
            }
            Err(failed) => {
                self.failed += 1;
                if failed.error.is_definite() {
                    self.uninvolved.push(server);
                }
                self.reasons.push(failed.error);
            }
        }
    }

    /// The state of the vote.
    pub(super) fn verdict(&self) -> VoteState {
        let majority = majority(self.servers);
        let granted = self.granted.len();
        let answered = granted + self.refused.len();
        let pending = self.servers - answered - self.failed;
        let others = self.held.values().max().copied().unwrap_or_default();
        if granted >= majority {
            VoteState::Granted
        } else if others >= majority {
            VoteState::Held
        } else if answered + pending < majority {
            VoteState::Failed
        } else if granted + pending >= majority || answered < majority {
            VoteState::Open
        } else if others + self.failed >= majority {
            VoteState::MayBeHeld
        } else if others + self.failed + pending < majority {
            VoteState::Split
        } else {
            VoteState::Open
        }
    }

    /// The servers at which the request may leave an entry: those that have granted it, and those that may have carried it out,
    /// or will, without an answer so far.
    pub(super) fn may_leave(&self) -> impl Iterator<Item = usize> {
        (0..self.servers).filter(|server| !self.refused.contains(server) && !self.uninvolved.contains(server))
    }
}

/// One server's vote: the reply of a script that says yes or no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptVote {
    pub(super) yes: bool,
    pub(super) rest: String,
}

impl ScriptVote {
    /// Reads `<nonce><sign><rest>`; `None` if that answers another request.
    pub(super) fn read(value: Value, nonce: &str) -> Option<Self> {
        let Value::BulkString(bytes) = value else { return None };
        let (sign, rest) = bytes.strip_prefix(nonce.as_bytes())?.split_first()?;
        let yes = match sign {
            b'+' => true,
            b'-' => false,
            _ => return None,
        };
        Some(Self { yes, rest: String::from_utf8_lossy(rest).into_owned() })
    }
}

/// Reads `<ms until it ends>:<holder>`. A key without an end says -1.
fn held(rest: &str) -> (Option<Duration>, &str) {
    let (ends_in, holder) = rest.split_once(':').unwrap_or(("", rest));
    (ends_in.parse().ok().map(Duration::from_millis), holder)
}

/// The servers at which an entry of one attempt may be, over all of its rounds, because a request was not answered or its undo not
/// confirmed.
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
        if !self.contains(server) {
            self.servers.push(server);
        }
    }

    /// Whether an entry may be at this server.
    pub(super) fn contains(&self, server: usize) -> bool {
        self.servers.contains(&server)
    }

    /// The servers at which an entry may be.
    pub(super) fn servers(&self) -> impl Iterator<Item = usize> {
        self.servers.iter().copied()
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
mod tests;
