//! `lock-redis` over a simulated network in virtual time: one seed is one course of partitions, delays, pauses and
//! restarts, again and again.
//!
//! Two holders never believe at once, and tokens grow; whoever is refused something, waits for long, or hears late of its
//! grant was hit by a fault; futures are dropped at every await; and when all have ended, nothing is left.
//!
//! The client's code is the one that ships: `turmoil` gives it hosts, connections and their faults, and `mad-turmoil` lets
//! the system's clock and its random numbers come from the simulation. The server runs the real scripts.
//!
//! `world.rs` is one run with one server, `quorum/world.rs` one with three. `scripts/mutants` plants the mistakes of `tests/simulation/mutants/` in a copy of `lock-redis`, and each is found by a
//! seed. `docs/decisions/0019-the-simulation-has-one-door.md` says why one seed is one course of events.
//!
//! `SEEDS=20000 cargo test -p simulation --test explore-seeds` tries more of them, `SEED=7` shows one, and with `WORLD=quorum` that of a quorum.

mod beliefs;
mod client;
mod clock;
mod company;
mod dropper;
mod faults;
mod hosts;
mod network;
mod quorum;
mod record;
mod world;

use std::process::{Command, ExitCode, Output};

use libtest_mimic::{Arguments, Failed, Trial};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::world::Outcome;

/// The number of seeds that the default run tries.
const SEEDS: u64 = 2000;
/// Seeds that a failure was found by; each of them is tried always.
const REGRESSIONS: &[u64] = &[];
/// The number of seeds that the default run tries with a quorum, which are one in so many of all.
const ONE_IN: u64 = 4;
/// The number of seeds in a trial.
const BATCH: u64 = 50;

/// The servers of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum World {
    One,
    Quorum,
}

impl World {
    /// Its name, in the environment and in the names of trials.
    const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Quorum => "quorum",
        }
    }

    fn run(self, seed: u64) -> Outcome {
        match self {
            Self::One => world::run(seed),
            Self::Quorum => quorum::run(seed),
        }
    }
}

fn main() -> ExitCode {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    if let Some(seed) = number("SEED") {
        let is_quorum = std::env::var("WORLD").is_ok_and(|name| name == World::Quorum.name());
        return show(if is_quorum { World::Quorum } else { World::One }, seed);
    }
    // In virtual time nothing is late: whatever has a deadline on this machine goes first, if it may.
    let _ = rustix::process::nice(15);
    let seeds = number("SEEDS").unwrap_or(SEEDS);
    let mut trials = vec![
        Trial::test("a_seed_is_one_course_of_events", || repeats(World::One)),
        Trial::test("a_seed_of_a_quorum_is_one_course_of_events", || repeats(World::Quorum)),
        Trial::test("regressions", || all_hold(World::One, REGRESSIONS.iter().copied())),
    ];
    for (world, seeds) in [(World::One, seeds), (World::Quorum, seeds / ONE_IN)] {
        let name = if world == World::One { "" } else { "quorum_" };
        for from in (0..seeds).step_by(BATCH as usize) {
            let to = (from + BATCH).min(seeds);
            trials.push(Trial::test(format!("{name}seeds_{from}_to_{}", to - 1), move || all_hold(world, from..to)));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Runs a seed in this process, and prints what happened.
fn show(world: World, seed: u64) -> ExitCode {
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(seed));
    let _clocks = mad_turmoil::time::SimClocksGuard::init();
    fastrand::seed(seed);
    let outcome = world.run(seed);
    outcome.events.iter().for_each(|event| println!("{event}"));
    println!("{} grants", outcome.grants);
    let Some(violation) = outcome.violation else { return ExitCode::SUCCESS };
    eprintln!("{violation}");
    ExitCode::FAILURE
}

/// Runs a seed in a process of its own: much of what is random, is so by process.
fn run(world: World, seed: u64) -> Result<Output, Failed> {
    let program = std::env::current_exe()?;
    let output = Command::new(program).env("SEED", seed.to_string()).env("WORLD", world.name()).output()?;
    if output.status.success() {
        return Ok(output);
    }
    let how = if world == World::One { "" } else { "WORLD=quorum " };
    Err(format!("{how}SEED={seed}: {}", String::from_utf8_lossy(&output.stderr)).into())
}

fn all_hold(world: World, mut seeds: impl Iterator<Item = u64>) -> Result<(), Failed> {
    seeds.try_for_each(|seed| run(world, seed).map(drop))
}

fn repeats(world: World) -> Result<(), Failed> {
    for seed in 1..=5 {
        let [one, other] = [run(world, seed)?.stdout, run(world, seed)?.stdout]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if let Some((one, other)) = one.lines().zip(other.lines()).find(|(one, other)| one != other) {
            return Err(format!("SEED={seed}: {one:?}, and then {other:?}").into());
        }
        if one.lines().count() < 10 || one != other {
            return Err(format!("SEED={seed}: {} and {} events", one.lines().count(), other.lines().count()).into());
        }
    }
    Ok(())
}
