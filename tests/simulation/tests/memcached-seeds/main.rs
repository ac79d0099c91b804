//! `lock-memcached` over a simulated network in virtual time: one seed is one course of partitions, delays, pauses, restarts and
//! flushes, again and again, with locks of every kind.
//!
//! The history of a run is judged as torture's are (`docs/histories.md`): nobody holds beside another one, tokens grow, nobody believes
//! for too long. Everybody comes to an end, and nothing is left at the server.
//!
//! Beside the seeds, `IDLE=1` shows a client that is idle for long.
//!
//! `SEEDS=20000 cargo test -p simulation --test explore-memcached-seeds` tries more of them, `SEED=7` shows one.

mod faults;
mod idle;
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
/// Name of what tells this program to run [`idle`] in its own process.
const IDLE: &str = "IDLE";

fn main() -> ExitCode {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    if let Some(seed) = number("SEED") {
        return show(seed);
    }
    if std::env::var_os(IDLE).is_some() {
        return show_idle();
    }
    // In virtual time nothing is late: whatever has a deadline on this machine goes first, if it may.
    let _ = rustix::process::nice(15);
    let seeds = number("SEEDS").unwrap_or(SEEDS);
    let mut trials = vec![
        Trial::test("a_seed_is_one_course_of_events", repeats),
        Trial::test("a_try_after_a_long_time_is_granted_at_once", || alone(IDLE, 1).map(drop)),
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
    let outcome = in_virtual_time(seed, || world::run(seed, &history));
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

/// Has a client of this process be idle for long, and prints what is wrong with that.
fn show_idle() -> ExitCode {
    let Err(error) = in_virtual_time(1, idle::run) else { return ExitCode::SUCCESS };
    eprintln!("{error}");
    ExitCode::FAILURE
}

/// Simulates something, with all that is random by this seed.
fn in_virtual_time<T>(seed: u64, simulate: impl FnOnce() -> T) -> T {
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(seed));
    let _clocks = mad_turmoil::time::SimClocksGuard::init();
    fastrand::seed(seed);
    simulate()
}

/// Runs a seed in a process of its own.
fn run(seed: u64) -> Result<Output, Failed> {
    alone("SEED", seed)
}

/// Runs this program, told so by the environment, in a process of its own: much of what is random, is so by process.
fn alone(what: &str, number: u64) -> Result<Output, Failed> {
    let program = std::env::current_exe()?;
    let output = Command::new(program).env(what, number.to_string()).output()?;
    if output.status.success() {
        return Ok(output);
    }
    Err(format!("{what}={number}: {}", String::from_utf8_lossy(&output.stderr)).into())
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
