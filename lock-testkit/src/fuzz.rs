//! Inputs from outside, made up by chance: for tests that no parser is broken by them.
//!
//! [`bytes`] and [`texts`] make inputs of samples, by changes that tend to hurt, and hand them to a test that panics if a claim
//! does not hold; [`with_rng`] leaves it to the test to make them. Without being told otherwise they make a few thousand, the same
//! ones every time.
//!
//! | variable | meaning |
//! |---|---|
//! | `LOCK_FUZZ_SECONDS` | for how long each test goes on, such as `3600` |
//! | `LOCK_FUZZ_INPUTS` | how many inputs each test tries |
//! | `LOCK_FUZZ_SEED` | where the inputs begin: that of an input which failed, with one input, shows it again |

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use crate::SeededRng;

/// Without being told otherwise: so many inputs for each test,
const INPUTS: u64 = 20_000;
/// or as many as can be tried in this time.
const TIME: Duration = Duration::from_secs(3);
/// The most changes that are made to one sample.
const CHANGES: u64 = 6;
/// No input is longer than this.
const MOST: usize = 8 << 10;
/// Pieces that parsers are hurt by: lengths, ends of lines, escapes, quotes, texts that are not UTF-8.
const PIECES: &[&[u8]] = &[
    b"",
    b"\r\n",
    b"\n",
    b"\0",
    b" ",
    b"-1",
    b"0",
    b"1",
    b"-0",
    b"+1",
    b"00",
    b"65536",
    b"2147483647",
    b"-2147483648",
    b"4294967296",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"1e999",
    b"NaN",
    b"null",
    b"true",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"%",
    b"%00",
    b"%zz",
    b"@",
    b":",
    b"/",
    b"//",
    b",",
    b"?",
    b"#",
    b"..",
    b"[::1]",
    b"$",
    b"*",
    b"~",
    b">",
    b"|",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\xc3",
    b"\xed\xa0\x80",
    "ü".as_bytes(),
    "\u{202e}".as_bytes(),
    "\u{1f512}".as_bytes(),
];

/// Tries inputs of any bytes that are made of these samples.
///
/// # Panics
/// Panics as the test does, after saying by which input and how to see it again.
pub fn bytes(what: &str, samples: &[&[u8]], mut test: impl FnMut(&[u8])) {
    each(what, |rng| {
        let input = input(samples, rng);
        let tried = catch_unwind(AssertUnwindSafe(|| test(&input)));
        tried.map_err(|panic| (panic, format!(": {}", input.escape_ascii())))
    });
}

/// Tries inputs that are texts.
///
/// # Panics
/// Panics as the test does, after saying by which input and how to see it again.
pub fn texts(what: &str, samples: &[&str], mut test: impl FnMut(&str)) {
    let samples: Vec<_> = samples.iter().map(|sample| sample.as_bytes()).collect();
    bytes(what, &samples, |input| test(&String::from_utf8_lossy(input)));
}

/// Tries inputs that the test makes itself, from this generator.
///
/// # Panics
/// Panics as the test does, after saying how to see it again.
pub fn with_rng(what: &str, mut test: impl FnMut(&mut SeededRng)) {
    each(what, |rng| {
        let tried = catch_unwind(AssertUnwindSafe(|| test(rng)));
        tried.map_err(|panic| (panic, String::new()))
    });
}

/// Lets every seed of the plan have its turn, until one fails; that one comes with its input.
fn each(what: &str, mut turn: impl FnMut(&mut SeededRng) -> Result<(), (Box<dyn Any + Send>, String)>) {
    let plan = Plan::of_environment();
    let (began, mut tried) = (Instant::now(), 0);
    while plan.goes_on(tried, began.elapsed()) {
        let seed = plan.seed.wrapping_add(tried);
        if let Err((panic, input)) = turn(&mut SeededRng::new(seed)) {
            eprintln!("{what}: LOCK_FUZZ_SEED={seed} LOCK_FUZZ_INPUTS=1{input}");
            resume_unwind(panic);
        }
        tried += 1;
    }
    println!("{what}: {tried} inputs in {:.1?}", began.elapsed());
}

/// The number of inputs to try, and where to begin.
struct Plan {
    seed: u64,
    inputs: Option<u64>,
    time: Option<Duration>,
}

impl Plan {
    fn of_environment() -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let (inputs, time) = (number("LOCK_FUZZ_INPUTS"), number("LOCK_FUZZ_SECONDS").map(Duration::from_secs));
        let (inputs, time) =
            if inputs.is_none() && time.is_none() { (Some(INPUTS), Some(TIME)) } else { (inputs, time) };
        Self { seed: number("LOCK_FUZZ_SEED").unwrap_or_default(), inputs, time }
    }

    fn goes_on(&self, tried: u64, elapsed: Duration) -> bool {
        self.inputs.is_none_or(|inputs| tried < inputs) && self.time.is_none_or(|time| elapsed < time)
    }
}

fn input(samples: &[&[u8]], rng: &mut SeededRng) -> Vec<u8> {
    let sample = |rng: &mut SeededRng| if samples.is_empty() { &[][..] } else { rng.one_of(samples) };
    let mut input = if rng.once_in(50) { Vec::new() } else { sample(rng).to_vec() };
    for _ in 0..=rng.below(CHANGES) {
        let (from, to) = {
            let (one, other) = (place(rng, input.len()), place(rng, input.len()));
            (one.min(other), one.max(other))
        };
        match rng.below(8) {
            0 if !input.is_empty() => {
                let at = from.min(input.len() - 1);
                input[at] ^= 1 << rng.below(8);
            }
            1 => input.insert(from, rng.next_u64().to_le_bytes()[0]),
            2 => drop(input.splice(from..to, [])),
            3 => input.truncate(from),
            4 => {
                let again = input[from..to].to_vec();
                drop(input.splice(to..to, again));
            }
            5 => {
                let other = sample(rng);
                let rest = place(rng, other.len());
                input.truncate(from);
                input.extend_from_slice(&other[rest..]);
            }
            6 => drop(input.splice(from..to, rng.one_of(PIECES).iter().copied())),
            _ => drop(input.splice(from..from, rng.one_of(PIECES).iter().copied())),
        }
        input.truncate(MOST);
    }
    input
}

/// A place in something of this length, its end included.
fn place(rng: &mut SeededRng, length: usize) -> usize {
    usize::try_from(rng.below(length as u64 + 1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::panics::Run;

    #[test]
    fn inputs_repeat_by_their_seed_and_leave_no_kind_of_change_out() {
        let of = |seed| input(&[b"GET a\r\n", b"SET b 1\r\n"], &mut SeededRng::new(seed));
        assert_eq!(of(7), of(7));
        let inputs: std::collections::HashSet<_> = (0..2_000).map(of).collect();
        assert!(inputs.len() > 1_500 && inputs.iter().any(|input| std::str::from_utf8(input).is_err()));
    }

    #[test]
    fn what_hurts_is_found() {
        // Its panics, which are meant, concern no other test.
        let _working = Run::work(Some(Run::new()));
        let mut tried = 0;
        let found = catch_unwind(AssertUnwindSafe(|| {
            texts("digits", &["12"], |text| {
                tried += 1;
                assert!(!text.contains("18446744073709551616"), "too large");
            });
        }));
        assert!(found.is_err() && tried < INPUTS);
    }
}
