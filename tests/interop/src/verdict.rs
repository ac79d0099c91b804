//! The judgement of a run.

use std::fmt;
use std::time::Duration;

use crate::crowd::{Bars, is_ours};
use crate::plan::Plan;
use crate::record::{Record, Tenure};

/// The longest time without a grant of a member, beyond the time for which a dead holder's lock outlives its TTL.
const LONGEST_GAP: Duration = Duration::from_secs(5);

/// The time after the end of a dead holder's lease for which somebody else may have to wait for it.
const RECOVERY: Duration = Duration::from_secs(1);

/// A run's result.
#[derive(Debug)]
pub(crate) struct Verdict {
    rows: Vec<Row>,
    findings: Vec<Finding>,
    hand_overs: Vec<String>,
}

/// One member.
#[derive(Debug)]
struct Row {
    name: String,
    library: String,
    grants: usize,
    /// In percent.
    share: f64,
    longest_wait: Duration,
    longest_gap: Duration,
    longest_hold: Duration,
}

/// One bar.
#[derive(Debug)]
struct Finding {
    what: String,
    met: bool,
}

impl Verdict {
    /// Judges the members' records, and what the counter says in the end.
    pub(crate) fn of(plan: &Plan, records: &[Record], counter: u64, crowd: Option<Bars>) -> Self {
        let all: usize = records.iter().map(|record| record.tenures.len()).sum();
        let rows: Vec<_> = records.iter().map(|record| Row::of(plan, record, all)).collect();
        let mut findings = Vec::new();
        let mut find = |what, met| findings.push(Finding { what, met });

        let overlaps = overlaps(records, plan.limit);
        find(format!("overlaps = {overlaps}"), overlaps == 0);
        let counted: u64 = records.iter().map(|record| record.counted).sum();
        // Where several hold at once, they may count the same number.
        if plan.limit == 1 {
            find(
                format!("counted {counted}, the counter says {counter}: lost updates = {}", counted.abs_diff(counter)),
                counted == counter,
            );
        }
        if let Some(bars) = crowd {
            let hand_overs = judge_crowd(bars, &rows, records, &mut find);
            return Self { rows, findings, hand_overs };
        }
        let kept = plan.scene.kept();
        let longest = LONGEST_GAP + kept;
        let ttl = Duration::from_millis(plan.ttl_ms);
        let long_holds = long_holds(records, ttl);
        for record in records {
            // Who asks now and then may well find the lock held by the next one each time that one is held for long, and those are
            // half of the run.
            let (besides, gap) = if is_ours(&record.name) || !plan.scene.others_poll() {
                ("", longest_gap(plan, record, &[]))
            } else {
                (" beside holds past the TTL", longest_gap(plan, record, &long_holds))
            };
            let (name, most, gap_seconds) = (&record.name, longest.as_secs(), seconds(gap));
            find(
                format!("{name}: never without a grant for more than {most} s{besides}: {gap_seconds} s"),
                gap <= longest,
            );
        }
        for (row, _) in rows.iter().zip(records).filter(|(_, record)| record.killed.is_none()) {
            let what =
                format!("{}: held once past its TTL of {} s: {} s", row.name, seconds(ttl), seconds(row.longest_hold));
            find(what, row.longest_hold > ttl);
        }
        for (name, killed) in records.iter().filter_map(|record| Some((&record.name, record.killed?))) {
            let next = tenures(records).map(|tenure| tenure.from).filter(|from| *from > killed).min();
            let after = next.map(|next| next.since(killed));
            let told = after.map_or_else(|| "never".to_owned(), |after| format!("after {} s", seconds(after)));
            let bar = ttl + kept + RECOVERY;
            let what = format!("{name} was killed while it held; granted again within {} s: {told}", seconds(bar));
            find(what, after.is_some_and(|after| after <= bar));
        }
        Self { rows, findings, hand_overs: Vec::new() }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.met)
    }
}

impl Row {
    fn of(plan: &Plan, record: &Record, all: usize) -> Self {
        Self {
            name: record.name.clone(),
            library: format!("{} {}", record.library, record.version),
            grants: record.tenures.len(),
            share: record.tenures.len() as f64 * 100.0 / all.max(1) as f64,
            longest_wait: record.waits.iter().copied().max().unwrap_or_default(),
            longest_gap: longest_gap(plan, record, &[]),
            longest_hold: record.tenures.iter().map(|tenure| tenure.length()).max().unwrap_or_default(),
        }
    }
}

/// Judges shares, gaps, and how soon a hand-over is; says how soon each kind of hand-over was.
fn judge_crowd(bars: Bars, rows: &[Row], records: &[Record], find: &mut impl FnMut(String, bool)) -> Vec<String> {
    let least = 50.0 / rows.len().max(1) as f64;
    for row in rows {
        let what = format!("{}: at least half of an equal share, {least:.1} %: {:.1} %", row.name, row.share);
        find(what, row.share >= least);
        let what = format!(
            "{}: never without a grant for more than {} s: {} s",
            row.name,
            seconds(bars.gap),
            seconds(row.longest_gap)
        );
        find(what, row.longest_gap <= bars.gap);
    }
    let mut said = Vec::new();
    for (from, to) in [(false, true), (true, false), (true, true), (false, false)] {
        let times = hand_overs(records, from, to);
        let Some(median) = quantile(&times, 50) else { continue };
        let told = |ours| if ours { "ours" } else { "theirs" };
        said.push(format!(
            "release of {} to grant of {}, who waited: {} times, p50 {:.2} ms, p90 {:.2} ms, longest {:.2} ms",
            told(from),
            told(to),
            times.len(),
            millis(median),
            millis(quantile(&times, 90).unwrap_or_default()),
            millis(times.last().copied().unwrap_or_default()),
        ));
        if let Some(bar) = bars.heard.filter(|_| !from && to) {
            find(
                format!("theirs to ours: p50 of at most {:.0} ms: {:.2} ms", millis(bar), millis(median)),
                median <= bar,
            );
        }
    }
    said
}

/// From the end of a tenure of one side to the beginning of the next one, which is of the other side's, if that waited: in
/// ascending order.
fn hand_overs(records: &[Record], from_ours: bool, to_ours: bool) -> Vec<Duration> {
    let mut turns: Vec<_> = records
        .iter()
        .flat_map(|record| {
            record.tenures.iter().zip(&record.waits).map(|(tenure, wait)| (*tenure, *wait, is_ours(&record.name)))
        })
        .collect();
    turns.sort_by_key(|(tenure, ..)| tenure.from);
    let mut times: Vec<_> = turns
        .windows(2)
        .filter(|pair| pair[0].2 == from_ours && pair[1].2 == to_ours)
        .map(|pair| (pair[1].0.from.since(pair[0].0.to), pair[1].1))
        .filter(|(between, waited)| between < waited)
        .map(|(between, _)| between)
        .collect();
    times.sort();
    times
}

fn quantile(times: &[Duration], percent: usize) -> Option<Duration> {
    times.get(times.len() * percent / 100).copied()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// The longest time from one grant to the next, without the part of it in these tenures. The run's beginning and its end count as
/// grants.
fn longest_gap(plan: &Plan, record: &Record, without: &[Tenure]) -> Duration {
    let mut before = plan.from;
    let mut longest = Duration::ZERO;
    let end = record.killed.unwrap_or(plan.until);
    for at in record.tenures.iter().map(|tenure| tenure.from).chain([end]) {
        let left_out = without.iter().map(|tenure| tenure.to.min(at).since(tenure.from.max(before))).sum();
        longest = longest.max(at.since(before).saturating_sub(left_out));
        before = at;
    }
    longest
}

/// The tenures past the TTL, and for each member that was killed the time until its lease has ended.
fn long_holds(records: &[Record], ttl: Duration) -> Vec<Tenure> {
    let dead = records.iter().filter_map(|record| record.killed);
    let dead = dead.map(|killed| Tenure { from: killed, to: killed.after(ttl), shared: false });
    tenures(records).filter(|tenure| tenure.length() > ttl).chain(dead).collect()
}

/// Tenures that began while as many members as may, or a reader's while a writer, or a writer's while anybody, believed that they
/// held the lock.
fn overlaps(records: &[Record], limit: u32) -> usize {
    let mut tenures: Vec<_> = tenures(records).collect();
    tenures.sort_by_key(|tenure| tenure.from);
    let is_too_many = |(i, next): (usize, &Tenure)| {
        let others = tenures[..i].iter().filter(|other| other.to > next.from && !(other.shared && next.shared));
        others.count() >= limit as usize
    };
    tenures.iter().enumerate().filter(|entry| is_too_many(*entry)).count()
}

/// Everybody's.
fn tenures(records: &[Record]) -> impl Iterator<Item = Tenure> {
    records.iter().flat_map(|record| record.tenures.iter().copied())
}

fn seconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64())
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| process | library | grants | share % | longest wait s | longest gap s | longest hold s |")?;
        writeln!(f, "|---|---|---|---|---|---|---|")?;
        for row in &self.rows {
            let Row { name, library, grants, share, .. } = row;
            let [wait, gap, hold] = [row.longest_wait, row.longest_gap, row.longest_hold].map(seconds);
            writeln!(f, "| {name} | {library} | {grants} | {share:.1} | {wait} | {gap} | {hold} |")?;
        }
        writeln!(f)?;
        for hand_over in &self.hand_overs {
            writeln!(f, "- {hand_over}")?;
        }
        for Finding { what, met } in &self.findings {
            writeln!(f, "- {what}: {}", if *met { "met" } else { "**missed**" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Instant, Special};
    use crate::scene::Scene;
    use std::path::PathBuf;

    const SECOND: u64 = 1_000_000_000;

    fn plan() -> Plan {
        Plan {
            scene: Scene::Redis,
            url: String::new(),
            key: String::new(),
            limit: 1,
            counter: PathBuf::new(),
            ttl_ms: 2_000,
            work_ms: 10,
            pause_ms: 10,
            from: Instant(0),
            until: Instant(10 * SECOND),
            special: Special { at: Instant(0), work_ms: 0, dies: false },
        }
    }

    /// With tenures from one second to another.
    fn record(tenures: &[(u64, u64)]) -> Record {
        let tenure =
            |&(from, to): &(u64, u64)| Tenure { from: Instant(from * SECOND), to: Instant(to * SECOND), shared: false };
        Record {
            name: "one".to_owned(),
            library: "some".to_owned(),
            version: "1.0".to_owned(),
            waits: Vec::new(),
            tenures: tenures.iter().map(tenure).collect(),
            counted: tenures.len() as u64,
            killed: None,
        }
    }

    fn missed(records: &[Record], counter: u64) -> Vec<String> {
        let verdict = Verdict::of(&plan(), records, counter, None);
        let missed: Vec<_> = verdict.findings.iter().filter(|finding| !finding.met).collect();
        assert_eq!(verdict.is_clean(), missed.is_empty());
        missed.iter().map(|finding| finding.what.clone()).collect()
    }

    #[test]
    fn a_good_run_misses_nothing() {
        assert!(missed(&[record(&[(0, 3), (5, 6)]), record(&[(4, 5), (6, 9)])], 4).is_empty());
    }

    #[test]
    fn two_at_once_are_an_overlap() {
        let missed = missed(&[record(&[(0, 3), (5, 6)]), record(&[(2, 5), (6, 9)])], 4);
        assert_eq!(missed, ["overlaps = 1"]);
    }

    #[test]
    fn readers_share_and_permits_are_counted() {
        let shared = |tenures| {
            let mut record = record(tenures);
            record.tenures.iter_mut().for_each(|tenure| tenure.shared = true);
            record
        };
        assert_eq!(overlaps(&[shared(&[(0, 3)]), shared(&[(1, 4)])], 1), 0);
        assert_eq!(
            overlaps(&[shared(&[(0, 3)]), shared(&[(1, 4)]), record(&[(2, 5)])], 1),
            1,
            "a writer beside readers"
        );
        assert_eq!(overlaps(&[record(&[(0, 3)]), record(&[(1, 4)])], 2), 0);
        assert_eq!(overlaps(&[record(&[(0, 3)]), record(&[(1, 4)]), record(&[(2, 5)])], 2), 1, "a third of two");
    }

    #[test]
    fn what_the_counter_does_not_show_is_lost() {
        let missed = missed(&[record(&[(0, 3), (5, 6)])], 1);
        assert!(missed.len() == 1 && missed[0].contains("lost updates = 1"), "{missed:?}");
    }

    #[test]
    fn who_waits_for_too_long_has_starved() {
        for starved in [record(&[(0, 3), (4, 5)]), record(&[(0, 3)]), record(&[(6, 9)])] {
            let counted = starved.counted;
            let missed = missed(&[starved], counted);
            assert!(missed.len() == 1 && missed[0].contains("never without a grant"), "{missed:?}");
        }
    }

    #[test]
    fn a_library_that_polls_need_not_come_in_between_two_long_holds() {
        let others = || record(&[(1, 4), (5, 7), (7, 9)]);
        let polls = record(&[(0, 1), (8, 9)]);
        assert_eq!(longest_gap(&plan(), &polls, &[]), Duration::from_secs(8));
        assert_eq!(
            longest_gap(&plan(), &polls, &long_holds(&[others()], Duration::from_secs(2))),
            Duration::from_secs(5)
        );
        let waits = |missed: Vec<String>| missed.iter().filter(|what| what.contains("never without a grant")).count();
        assert_eq!(waits(missed(&[polls, others()], 5)), 0);
        let ours = Record { name: "ours-1".to_owned(), ..record(&[(0, 1), (8, 9)]) };
        assert_eq!(waits(missed(&[ours, others()], 5)), 1, "ours stand in a queue");
        let queued = Plan { scene: Scene::CuratorMutex, ..plan() };
        let verdict = Verdict::of(&queued, &[record(&[(0, 1), (8, 9)]), others()], 5, None);
        let waits = verdict.findings.iter().filter(|finding| !finding.met && finding.what.contains("never without"));
        assert_eq!(waits.count(), 1, "Curator's stand in that queue");
    }

    #[test]
    fn who_was_not_renewed_has_shown_nothing() {
        let missed = missed(&[record(&[(0, 1), (5, 6)])], 2);
        assert!(missed.len() == 1 && missed[0].contains("held once past its TTL"), "{missed:?}");
    }

    #[test]
    fn others_go_on_after_the_death_of_a_holder() {
        let dead = |at| Record { killed: Some(Instant(at * SECOND)), counted: 1, ..record(&[(0, 1), (at, at)]) };
        assert!(missed(&[dead(4), record(&[(1, 4), (6, 9)])], 3).is_empty());
        let late = missed(&[dead(1), record(&[(1, 1), (5, 9)])], 3);
        assert!(late.len() == 1 && late[0].contains("granted again"), "{late:?}");
    }
}
