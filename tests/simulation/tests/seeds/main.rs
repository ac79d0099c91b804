//! `lock-redis` over a simulated network in virtual time: one seed is one course of partitions, delays, pauses and
//! restarts, again and again.
//!
//! Two holders never believe at once, and tokens grow; whoever is refused something, or waits for long, was hit by a fault;
//! futures are dropped at every await; and when all have ended, nothing is left.
//!
//! The client's code is the one that ships: `turmoil` gives it hosts, connections and their faults, and `mad-turmoil` lets
//! the system's clock and its random numbers come from the simulation. The server runs the real scripts.
//!
//! `SEEDS=20000 cargo test -p simulation --test explore-seeds` tries more of them, `SEED=7` shows one.

mod beliefs;
mod client;
mod clock;
mod company;
mod dropper;
mod faults;
mod hosts;
mod network;
mod record;
mod world;

use std::process::{Command, ExitCode, Output};

use libtest_mimic::{Arguments, Failed, Trial};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// The number of seeds that the default run tries.
const SEEDS: u64 = 2000;
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
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(seed));
    let _clocks = mad_turmoil::time::SimClocksGuard::init();
    fastrand::seed(seed);
    let outcome = world::run(seed);
    outcome.events.iter().for_each(|event| println!("{event}"));
    println!("{} grants", outcome.grants);
    let Some(violation) = outcome.violation else { return ExitCode::SUCCESS };
    eprintln!("{violation}");
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
