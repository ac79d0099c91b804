//! `lock-memcached` over a simulated network in virtual time: one seed is one course of partitions, delays, pauses, restarts and
//! flushes, again and again, with locks of every kind.
//!
//! The history of a run is judged as torture's are (`docs/histories.md`): nobody holds beside another one, tokens grow, nobody believes
//! for too long. Everybody comes to an end, and nothing is left at the server.
//!
//! `SEEDS=20000 cargo test -p simulation --test explore-memcached-seeds` tries more of them, `SEED=7` shows one.

mod faults;
mod network;
mod worker;
mod world;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Output};

use libtest_mimic::{Arguments, Failed, Trial};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// The number of seeds that the default run tries.
const SEEDS: u64 = 1000;
/// Seeds that a failure was found by; each of them is tried always.
const REGRESSIONS: &[u64] = &[];
/// The number of seeds in a trial.
const BATCH: u64 = 50;

fn main() -> ExitCode {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    if let Some(seed) = number("SEED") {
        return show(seed);
    }
    // In virtual time nothing is late: whatever has a deadline on this machine goes first, if it may.
    let _ = rustix::process::nice(15);
    let seeds = number("SEEDS").unwrap_or(SEEDS);
    let mut trials = vec![
        Trial::test("a_seed_is_one_course_of_events", repeats),
        Trial::test("regressions", || all_hold(REGRESSIONS.iter().copied())),
    ];
    for from in (0..seeds).step_by(BATCH as usize) {
        let to = (from + BATCH).min(seeds);
        trials.push(Trial::test(format!("seeds_{from}_to_{}", to - 1), move || all_hold(from..to)));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Runs a seed in this process, and prints what happened.
fn show(seed: u64) -> ExitCode {
    // Only this process has this file.
    let history = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("memcached-{seed}-{}", std::process::id()));
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(seed));
    let outcome = {
        let _clocks = mad_turmoil::time::SimClocksGuard::init();
        fastrand::seed(seed);
        world::run(seed, &history)
    };
    // Where it was not written there is nothing to remove.
    let _ = std::fs::remove_file(&history);
    match outcome {
        Ok(outcome) => {
            outcome.events.iter().for_each(|event| println!("{event}"));
            println!("{} grants", outcome.grants);
            let Some(violation) = outcome.violation else { return ExitCode::SUCCESS };
            eprintln!("{violation}");
        }
        Err(error) => eprintln!("{error}"),
    }
    ExitCode::FAILURE
}

/// Runs a seed in a process of its own: much of what is random, is so by process.
fn run(seed: u64) -> Result<Output, Failed> {
    let program = std::env::current_exe()?;
    let output = Command::new(program).env("SEED", seed.to_string()).output()?;
    if output.status.success() {
        return Ok(output);
    }
    Err(format!("SEED={seed}: {}", String::from_utf8_lossy(&output.stderr)).into())
}

fn all_hold(mut seeds: impl Iterator<Item = u64>) -> Result<(), Failed> {
    seeds.try_for_each(|seed| run(seed).map(drop))
}

fn repeats() -> Result<(), Failed> {
    for seed in 1..=5 {
        let [one, other] =
            [run(seed)?.stdout, run(seed)?.stdout].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if let Some((one, other)) = one.lines().zip(other.lines()).find(|(one, other)| one != other) {
            return Err(format!("SEED={seed}: {one:?}, and then {other:?}").into());
        }
        if one.lines().count() < 10 || one != other {
            return Err(format!("SEED={seed}: {} and {} events", one.lines().count(), other.lines().count()).into());
        }
    }
    Ok(())
}
