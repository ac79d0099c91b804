//! Counting votes: no I/O, no clock.

use std::collections::HashMap;

/// The number of servers that is more than half of so many: any two majorities share a server.
pub(super) const fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

/// One server's answer to an acquisition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Vote {
    Granted,
    /// Somebody else has it there: the beginning of what the server holds, which is another one for every grant.
    Held(String),
    /// No answer, or one that says nothing.
    Failed,
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

/// The votes on one acquisition.
#[derive(Debug)]
pub(super) struct Tally {
    servers: usize,
    granted: usize,
    failed: usize,
    held: HashMap<String, usize>,
}

impl Tally {
    pub(super) fn of(servers: usize) -> Self {
        Self { servers, granted: 0, failed: 0, held: HashMap::new() }
    }

    pub(super) fn count(&mut self, vote: Vote) {
        match vote {
            Vote::Granted => self.granted += 1,
            Vote::Held(by) => *self.held.entry(by).or_default() += 1,
            Vote::Failed => self.failed += 1,
        }
    }

    /// The number of servers that were asked.
    pub(super) fn servers(&self) -> usize {
        self.servers
    }

    /// The number of servers that said whether they grant it.
    pub(super) fn answered(&self) -> usize {
        self.granted + self.held.values().sum::<usize>()
    }

    pub(super) fn verdict(&self) -> VoteState {
        let majority = majority(self.servers);
        let pending = self.servers - self.answered() - self.failed;
        let others = self.held.values().max().copied().unwrap_or_default();
        if self.granted >= majority {
            VoteState::Granted
        } else if others >= majority {
            VoteState::Held
        } else if self.answered() + pending < majority {
            VoteState::Failed
        } else if self.granted + pending >= majority || self.answered() < majority {
            VoteState::Open
        } else if others + self.failed >= majority {
            VoteState::MayBeHeld
        } else if others + self.failed + pending < majority {
            VoteState::Split
        } else {
            VoteState::Open
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` granted, `x` failed, any other letter: held by that one.
    fn verdict(servers: usize, votes: &str) -> VoteState {
        let mut tally = Tally::of(servers);
        for vote in votes.chars() {
            tally.count(match vote {
                '+' => Vote::Granted,
                'x' => Vote::Failed,
                other => Vote::Held(other.to_string()),
            });
        }
        tally.verdict()
    }

    #[test]
    fn a_majority_is_more_than_half() {
        assert_eq!([3, 4, 5, 6, 7].map(majority), [2, 3, 3, 4, 4]);
    }

    #[test]
    fn a_majority_decides_without_the_rest() {
        assert_eq!(verdict(5, "++"), VoteState::Open);
        assert_eq!(verdict(5, "++xx+"), VoteState::Granted);
        assert_eq!(verdict(5, "+++"), VoteState::Granted);
        assert_eq!(verdict(5, "aaa"), VoteState::Held);
        assert_eq!(verdict(5, "xxx"), VoteState::Failed);
        assert_eq!(verdict(4, "++"), VoteState::Open);
        assert_eq!(verdict(4, "++xx"), VoteState::Failed);
    }

    #[test]
    fn a_split_vote_is_nobody_s() {
        assert_eq!(verdict(5, "++aab"), VoteState::Split);
        assert_eq!(verdict(5, "+aabb"), VoteState::Split);
        assert_eq!(verdict(5, "+abc"), VoteState::Split, "the fifth can help nobody");
        assert_eq!(verdict(4, "++aa"), VoteState::Split);
    }

    #[test]
    fn who_may_have_a_majority_with_silent_servers_may_hold_it() {
        assert_eq!(verdict(5, "+aaxx"), VoteState::MayBeHeld);
        assert_eq!(verdict(5, "aaxxa"), VoteState::Held);
        assert_eq!(verdict(5, "+aab"), VoteState::Open, "a may have the fifth");
        assert_eq!(verdict(5, "+aabx"), VoteState::MayBeHeld);
    }

    /// Tests that, whatever comes after it, a verdict other than `Open` was right; and when all have voted there is one.
    #[test]
    fn every_order_of_votes_ends_in_a_verdict() {
        let letters = ['+', 'a', 'b', 'x'];
        for servers in [3, 4, 5] {
            for code in 0..letters.len().pow(servers as u32) {
                let votes: String = (0..servers).map(|i| letters[code / letters.len().pow(i as u32) % 4]).collect();
                assert_ne!(verdict(servers, &votes), VoteState::Open, "{votes}");
                let granted = votes.chars().filter(|vote| *vote == '+').count() >= majority(servers);
                for seen in 0..=servers {
                    let early = verdict(servers, &votes[..seen]);
                    assert!(early != VoteState::Granted || granted, "{votes} after {seen}");
                    assert!(
                        early == VoteState::Granted || early == VoteState::Open || !granted,
                        "{votes} after {seen}"
                    );
                }
            }
        }
    }
}
