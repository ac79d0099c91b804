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
pub(super) enum Standing {
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

    pub(super) fn verdict(&self) -> Standing {
        let majority = majority(self.servers);
        let pending = self.servers - self.answered() - self.failed;
        let others = self.held.values().max().copied().unwrap_or_default();
        if self.granted >= majority {
            Standing::Granted
        } else if others >= majority {
            Standing::Held
        } else if self.answered() + pending < majority {
            Standing::Failed
        } else if self.granted + pending >= majority || self.answered() < majority {
            Standing::Open
        } else if others + self.failed >= majority {
            Standing::MayBeHeld
        } else if others + self.failed + pending < majority {
            Standing::Split
        } else {
            Standing::Open
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` granted, `x` failed, any other letter: held by that one.
    fn verdict(servers: usize, votes: &str) -> Standing {
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
        assert_eq!(verdict(5, "++"), Standing::Open);
        assert_eq!(verdict(5, "++xx+"), Standing::Granted);
        assert_eq!(verdict(5, "+++"), Standing::Granted);
        assert_eq!(verdict(5, "aaa"), Standing::Held);
        assert_eq!(verdict(5, "xxx"), Standing::Failed);
        assert_eq!(verdict(4, "++"), Standing::Open);
        assert_eq!(verdict(4, "++xx"), Standing::Failed);
    }

    #[test]
    fn a_split_vote_is_nobody_s() {
        assert_eq!(verdict(5, "++aab"), Standing::Split);
        assert_eq!(verdict(5, "+aabb"), Standing::Split);
        assert_eq!(verdict(5, "+abc"), Standing::Split, "the fifth can help nobody");
        assert_eq!(verdict(4, "++aa"), Standing::Split);
    }

    #[test]
    fn who_may_have_a_majority_with_silent_servers_may_hold_it() {
        assert_eq!(verdict(5, "+aaxx"), Standing::MayBeHeld);
        assert_eq!(verdict(5, "aaxxa"), Standing::Held);
        assert_eq!(verdict(5, "+aab"), Standing::Open, "a may have the fifth");
        assert_eq!(verdict(5, "+aabx"), Standing::MayBeHeld);
    }

    /// Tests that, whatever comes after it, a verdict other than `Open` was right; and when all have voted there is one.
    #[test]
    fn every_order_of_votes_ends_in_a_verdict() {
        let letters = ['+', 'a', 'b', 'x'];
        for servers in [3, 4, 5] {
            for code in 0..letters.len().pow(servers as u32) {
                let votes: String = (0..servers).map(|i| letters[code / letters.len().pow(i as u32) % 4]).collect();
                assert_ne!(verdict(servers, &votes), Standing::Open, "{votes}");
                let granted = votes.chars().filter(|vote| *vote == '+').count() >= majority(servers);
                for seen in 0..=servers {
                    let early = verdict(servers, &votes[..seen]);
                    assert!(early != Standing::Granted || granted, "{votes} after {seen}");
                    assert!(early == Standing::Granted || early == Standing::Open || !granted, "{votes} after {seen}");
                }
            }
        }
    }
}
