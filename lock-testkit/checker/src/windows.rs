//! The times at which something was wrong, and with whom.

use std::collections::HashMap;

use crate::history::event::{Fault, FaultPhase, STALL, Text};

/// One fault, from its beginning until it was healed.
#[derive(Debug, Clone)]
pub(super) struct Window {
    pub(super) name: Text,
    pub(super) target: Text,
    pub(super) from: u64,
    /// `None` if it was never healed.
    pub(super) to: Option<u64>,
    pub(super) proven: bool,
    /// Whether its target stands still, if that is a process.
    stands_still: bool,
}

impl Window {
    /// Whether the run chose it.
    pub(super) fn is_chosen(&self) -> bool {
        &*self.name != STALL
    }
}

/// All faults of a history.
#[derive(Debug, Default)]
pub(super) struct Windows {
    windows: Vec<Window>,
    open: HashMap<Text, usize>,
    /// At servers and the machine: they concern everybody.
    everywhere: Cover,
    /// At one process.
    of: HashMap<Text, Cover>,
    /// While it lasts, at one process that stands still.
    during: HashMap<Text, Cover>,
    any: Cover,
}

impl Windows {
    pub(super) fn note(&mut self, t: u64, fault: &Fault) {
        let proven = fault.proof.is_some();
        match fault.phase {
            FaultPhase::Start => {
                self.open.insert(fault.id.clone(), self.windows.len());
                let (name, target) = (fault.name.clone(), fault.target.clone());
                self.windows.push(Window { name, target, from: t, to: None, proven, stands_still: !fault.on_links });
            }
            FaultPhase::Heal => {
                if let Some(window) = self.open.remove(&fault.id).and_then(|place| self.windows.get_mut(place)) {
                    window.to = Some(t);
                    window.proven |= proven;
                }
            }
        }
    }

    /// A process that was killed by the run. What was wrong with it ends with it.
    pub(super) fn note_death(&mut self, t: u64, victim: &Text) {
        for window in self.windows.iter_mut().filter(|window| window.to.is_none() && window.target == *victim) {
            window.to = Some(t);
        }
        let (name, target) = ("death".into(), victim.clone());
        self.windows.push(Window { name, target, from: t, to: Some(t), proven: true, stands_still: true });
    }

    /// To be called once, when all are noted. What is wrong with a server is felt for `settle` longer; so is what is wrong
    /// with a process, by itself alone.
    pub(super) fn finish(&mut self, settle: u64, is_process: impl Fn(&Text) -> bool) {
        let mut everywhere = Vec::new();
        let mut any = Vec::new();
        let (mut of, mut during) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for window in &self.windows {
            let to = window.to.unwrap_or(u64::MAX);
            let span = (window.from, to.saturating_add(settle));
            any.push(span);
            if is_process(&window.target) {
                of.entry(window.target.clone()).or_default().push(span);
                if window.stands_still {
                    during.entry(window.target.clone()).or_default().push((window.from, to));
                }
            } else {
                everywhere.push(span);
            }
        }
        self.everywhere = Cover::of(everywhere);
        self.any = Cover::of(any);
        let covers = |spans: HashMap<Text, Vec<_>>| spans.into_iter().map(|(target, of)| (target, Cover::of(of)));
        self.of = covers(of).collect();
        self.during = covers(during).collect();
    }

    pub(super) fn all(&self) -> &[Window] {
        &self.windows
    }

    /// Whether a process may have felt anything between these instants.
    pub(super) fn touch(&self, proc: &Text, from: u64, to: u64) -> bool {
        self.everywhere.touches(from, to) || self.of.get(proc).is_some_and(|cover| cover.touches(from, to))
    }

    /// Whether a process itself stood still between these instants: then it is late, whatever it does.
    pub(super) fn stood_still(&self, proc: &Text, from: u64, to: u64) -> bool {
        self.during.get(proc).is_some_and(|cover| cover.touches(from, to))
    }

    /// Whether anybody may have felt anything.
    pub(super) fn touch_anybody(&self, from: u64, to: u64) -> bool {
        self.any.touches(from, to)
    }

    /// Returns how much of the time between these instants nobody can have felt anything.
    pub(super) fn undisturbed(&self, from: u64, to: u64) -> u64 {
        self.any.gaps(from, to).sum()
    }

    /// Returns the longest time between these instants in which nobody can have felt anything.
    pub(super) fn longest_undisturbed(&self, from: u64, to: u64) -> u64 {
        self.any.gaps(from, to).max().unwrap_or_default()
    }

    /// The instant at which nothing that a process feels at `t` is felt any more.
    pub(super) fn after(&self, proc: &Text, t: u64) -> u64 {
        let own = self.of.get(proc).map_or(t, |cover| cover.after(t));
        self.everywhere.after(t).max(own)
    }

    /// Returns the end of the last fault that the run chose.
    pub(super) fn last_heal(&self) -> u64 {
        let chosen = self.windows.iter().filter(|window| window.is_chosen());
        chosen.map(|window| window.to.unwrap_or(u64::MAX)).max().unwrap_or_default()
    }
}

/// A set of instants: intervals without overlaps, in order.
#[derive(Debug, Default)]
struct Cover(Vec<(u64, u64)>);

impl Cover {
    fn of(mut spans: Vec<(u64, u64)>) -> Self {
        spans.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(spans.len());
        for (from, to) in spans {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        Self(merged)
    }

    fn touches(&self, from: u64, to: u64) -> bool {
        let begun = self.0.partition_point(|span| span.0 <= to);
        begun > 0 && self.0[begun - 1].1 >= from
    }

    /// Returns the lengths of the times between these instants that are not in it.
    fn gaps(&self, from: u64, to: u64) -> impl Iterator<Item = u64> {
        let over = self.0.partition_point(|span| span.1 <= from);
        let spans = self.0[over..].iter().take_while(move |span| span.0 < to).copied();
        let mut free = from;
        let ends = spans.chain(std::iter::once((to, to)));
        ends.map(move |(begins, ends)| begins.min(to).saturating_sub(std::mem::replace(&mut free, ends.min(to))))
    }

    fn after(&self, t: u64) -> u64 {
        let begun = self.0.partition_point(|span| span.0 <= t);
        if begun > 0 { self.0[begun - 1].1.max(t) } else { t }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cover_knows_what_it_touches() {
        let cover = Cover::of(vec![(50, 60), (10, 20), (15, 30)]);
        assert_eq!(cover.0, [(10, 30), (50, 60)]);
        assert!(cover.touches(0, 10) && cover.touches(30, 40) && cover.touches(12, 13) && cover.touches(0, 100));
        assert!(!cover.touches(0, 9) && !cover.touches(31, 49) && !cover.touches(61, 70));
        assert_eq!((cover.after(5), cover.after(10), cover.after(29), cover.after(40)), (5, 30, 30, 40));
    }

    #[test]
    fn what_is_undisturbed_is_the_rest() {
        let windows = Windows { any: Cover::of(vec![(0, 20), (30, 40), (90, 200)]), ..Windows::default() };
        assert_eq!(
            (windows.undisturbed(10, 100), windows.undisturbed(0, 20), windows.undisturbed(50, 60)),
            (60, 0, 10)
        );
        let longest = |from, to| windows.longest_undisturbed(from, to);
        assert_eq!(
            (longest(10, 100), longest(0, 20), longest(35, 60), longest(10, 35), longest(300, 310)),
            (50, 0, 20, 10, 10)
        );
    }
}
