//! The other judge: a search through every order in which a few operations can have taken effect, after Wing and Gong
//! (1993) and Lowe (2017).

use std::collections::HashSet;

use crate::history::event::Kind;

/// One hold: when it can have begun, become weaker, and ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    pub(super) owner: usize,
    pub(super) kind: Kind,
    pub(super) permits: u32,
    pub(super) begin: Window,
    /// The kind and the number of permits to which it changes.
    pub(super) change: Option<(Window, Kind, u32)>,
    pub(super) end: Window,
}

/// Within which times an operation took effect, both included; whether it surely did.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) surely: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OrderStep {
    Begin,
    Change,
    End,
}

/// Whether some order of the operations is one that a lock with so many permits could have had.
pub(super) fn is_legal(holds: &[Hold], limit: u32) -> bool {
    let mut steps = Vec::new();
    for (place, hold) in holds.iter().enumerate() {
        steps.push((place, OrderStep::Begin, hold.begin));
        steps.extend(hold.change.map(|(window, ..)| (place, OrderStep::Change, window)));
        steps.push((place, OrderStep::End, hold.end));
    }
    Search { holds, limit, steps, seen: HashSet::new() }.go(0, 0)
}

struct Search<'a> {
    holds: &'a [Hold],
    limit: u32,
    steps: Vec<(usize, OrderStep, Window)>,
    seen: HashSet<u32>,
}

impl Search<'_> {
    /// Whether the rest can follow what was done, at `now` or later. Every operation takes effect as early as it can, so
    /// what was done tells the time.
    fn go(&mut self, done: u32, now: u64) -> bool {
        if (0..self.steps.len()).all(|step| done & (1 << step) != 0 || !self.steps[step].2.surely) {
            return true;
        }
        if !self.seen.insert(done) {
            return false;
        }
        (0..self.steps.len()).any(|step| {
            let window = self.steps[step].2;
            let at = now.max(window.from);
            done & (1 << step) == 0 && at <= window.to && self.can(done, step) && self.go(done | (1 << step), at)
        })
    }

    fn can(&self, done: u32, step: usize) -> bool {
        let (place, what, _) = self.steps[step];
        match what {
            OrderStep::Begin => self.admits(done, place),
            OrderStep::Change => self.state(done, place).is_some(),
            // What changed surely did so before its end.
            OrderStep::End => {
                let changed =
                    |(other, what, _): &(usize, OrderStep, Window)| *other == place && *what == OrderStep::Change;
                let change = self.steps.iter().position(changed);
                self.state(done, place).is_some() && change.is_none_or(|change| done & (1 << change) != 0)
            }
        }
    }

    /// As what a hold is there, if it is.
    fn state(&self, done: u32, place: usize) -> Option<(Kind, u32)> {
        let hold = &self.holds[place];
        let mut state = None;
        for (step, (other, what, _)) in self.steps.iter().enumerate() {
            if *other != place || done & (1 << step) == 0 {
                continue;
            }
            state = match what {
                OrderStep::Begin => Some((hold.kind, hold.permits)),
                OrderStep::Change => hold.change.map(|(_, kind, permits)| (kind, permits)),
                OrderStep::End => return None,
            };
        }
        state
    }

    fn admits(&self, done: u32, place: usize) -> bool {
        let hold = &self.holds[place];
        let others = (0..self.holds.len()).filter_map(|other| Some((other, self.state(done, other)?)));
        if hold.kind == Kind::Sem {
            return others.map(|(_, (_, permits))| permits).sum::<u32>() + hold.permits <= self.limit;
        }
        let mut others = others;
        others.all(|(other, (kind, _))| {
            let shared = !kind.is_exclusive() && !hold.kind.is_exclusive();
            let same = hold.kind != Kind::Mutex && self.holds[other].owner == hold.owner;
            shared || same
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(owner: usize, from: u64, to: u64) -> Hold {
        let at = |t| Window { from: t, to: t, surely: true };
        Hold { owner, kind: Kind::Mutex, permits: 1, begin: at(from), change: None, end: at(to) }
    }

    #[test]
    fn the_search_knows_what_a_mutex_is() {
        assert!(is_legal(&[hold(0, 1, 5), hold(1, 5, 9)], 1));
        assert!(!is_legal(&[hold(0, 1, 5), hold(1, 4, 9)], 1));
        assert!(!is_legal(&[hold(0, 1, 5), hold(0, 4, 9)], 1));
        let mut late = hold(1, 4, 9);
        late.begin.to = 5;
        assert!(is_legal(&[hold(0, 1, 5), late], 1));
    }
}
