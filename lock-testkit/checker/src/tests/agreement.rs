//! The sweep and the search say the same of every small history: ME, RW and SEM are exact.

use lock_testkit::SeededRng;

use super::search::{Hold, Window, is_legal};
use super::sketch::{Sketch, of_kind, rules};
use crate::Check;
use crate::history::event::{Ask, Granted, Kind, Sample};

/// The number of histories. `LOCK_TESTKIT_HISTORIES` asks for another one.
const HISTORIES: u64 = 100_000;
const LATEST: u64 = 24;
const MS: u64 = 1_000_000;

#[test]
fn the_sweep_agrees_with_the_search() {
    let asked = std::env::var("LOCK_TESTKIT_HISTORIES").ok().and_then(|text| text.parse().ok());
    let (mut legal, mut illegal) = (0, 0);
    for seed in 0..asked.unwrap_or(HISTORIES) {
        let (sketch, holds, limit) = random(&mut SeededRng::new(seed));
        let expected = is_legal(&holds, limit);
        let judgement = sketch.judge();
        let accused = [Check::ME, Check::RW, Check::SEM].iter().any(|check| judgement.is_rejected_by(*check));
        assert_eq!(expected, !accused, "seed {seed}: {judgement}\n{holds:#?}");
        *(if expected { &mut legal } else { &mut illegal }) += 1;
    }
    assert!(legal > 1_000 && illegal > 1_000, "{legal} legal, {illegal} illegal: too few of a kind");
}

fn random(rng: &mut SeededRng) -> (Sketch, Vec<Hold>, u32) {
    let mut rules = rules();
    // A lease lasts as long as it says.
    (rules.clock_rate, rules.granularity) = (0, 0);
    let mut sketch = Sketch::by(rules);
    let family = rng.one_of(&[&[Kind::Mutex][..], &[Kind::Reentrant], &[Kind::Read, Kind::Write], &[Kind::Sem]]);
    let limit = if family == [Kind::Sem] { 2 + u32::try_from(rng.below(2)).unwrap() } else { 1 };
    let mut holds = Vec::new();
    for _ in 0..2 + rng.below(3) {
        let owner = rng.below(3);
        let mut ask = of_kind(rng.one_of(family), ["a", "b", "c"][usize::try_from(owner).unwrap()]);
        (ask.limit, ask.ttl) = (limit, (1 + rng.below(LATEST / 3)) * MS);
        if ask.kind == Kind::Sem {
            ask.permits = 1 + u32::try_from(rng.below(u64::from(limit))).unwrap();
        }
        holds.extend(hold(rng, &mut sketch, ask, usize::try_from(owner).unwrap()));
    }
    (sketch, holds, limit)
}

/// One acquisition with one of the fates that it can have, and what that means for the search.
fn hold(rng: &mut SeededRng, sketch: &mut Sketch, ask: Ask, owner: usize) -> Vec<Hold> {
    let [asked, granted, changed, done, released, answered] = times(rng);
    let (kind, permits, lease) = (ask.kind, ask.permits, ask.ttl / MS);
    let surely = |from, to| Window { from, to, surely: true };
    let perhaps = |from| Window { from, to: u64::MAX, surely: false };
    let hold = |begin, end| Hold { owner, kind, permits, begin, change: None, end };
    let id = sketch.ask(asked, ask);
    let sample = Sample { held: Some(true), deadline: None };
    let begin = surely(asked, granted);
    let fate = rng.below(8);
    match fate {
        0 => {
            sketch.refuse(granted, &id);
            return Vec::new();
        }
        // Never answered.
        1 => return vec![hold(perhaps(asked), perhaps(asked))],
        // Over when the answer came: nobody believed in it.
        2 => {
            let sample = Sample { held: Some(false), deadline: None };
            sketch.grant(granted, &id, Granted { sample, ..Granted::default() });
            return vec![hold(Window { surely: false, ..begin }, perhaps(asked))];
        }
        _ => sketch.grant(granted, &id, Granted { sample, grant: Some(id.clone()), ..Granted::default() }),
    }
    let mut hold = match fate {
        // Asked for the last time.
        3 => {
            sketch.check(released, &id, true);
            hold(begin, perhaps(released))
        }
        4 => {
            sketch.release_unheard(released, &id);
            hold(begin, perhaps(released))
        }
        // Found to be lost when it was released; asked before.
        5 => {
            sketch.check(done, &id, true);
            sketch.release_nothing(released, &id);
            hold(begin, perhaps(done))
        }
        _ => {
            sketch.release_until(released, answered.max(released), &id);
            hold(begin, surely(released, answered.max(released)))
        }
    };
    if rng.below(4) == 0 {
        let [after, done] = times(rng);
        sketch.steal(after, done, &[&id]);
        return robbed(&hold, after, done + lease);
    }
    // No clock is so coarse that a grant and a change of it fall on one instant.
    if fate > 5 && changed > granted && (kind == Kind::Write || permits > 1) && rng.below(2) == 0 {
        let (kind, permits) = if kind == Kind::Write { (Kind::Read, 1) } else { (Kind::Sem, permits - 1) };
        sketch.change(changed, done, &id, kind, permits);
        hold.change = Some((surely(changed, done), kind, permits));
    }
    vec![hold]
}

/// Returns what may be left to the holder of a hold that was taken away, and that needs not have known before `due`:
/// nothing from `after` on; a belief beyond `due` needs a new grant by then.
fn robbed(hold: &Hold, after: u64, due: u64) -> Vec<Hold> {
    let (granted, until) = (hold.begin.to, hold.end.from);
    if until <= after || granted >= due {
        return vec![*hold];
    }
    let before = Hold { end: Window { from: after, to: u64::MAX, surely: false }, ..*hold };
    let again = Hold { begin: Window { from: after, to: due, surely: true }, ..*hold };
    [(granted < after).then_some(before), (until > due).then_some(again)].into_iter().flatten().collect()
}

/// So many times, in order.
fn times<const N: usize>(rng: &mut SeededRng) -> [u64; N] {
    let mut times = [0; N].map(|_: u64| 1 + rng.below(LATEST));
    times.sort_unstable();
    times
}
