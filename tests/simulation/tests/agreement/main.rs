//! The specification of the scripts, the real Redis and the simulated one, side by side: the real scripts in random sequences,
//! under one clock that stands still during each step, also in the very millisecond in which something ends. After each step
//! every reply and everything that the keys hold is compared: in `sequence/` on all three sides, in `course.rs`, which does more
//! than the specification knows of, on both servers.
//!
//! `SEQUENCES=10000 cargo test -p simulation --test explore-agreement` tries more of them; a failure names the one to look at.

#![cfg(test)]

mod course;
mod model;
mod pair;
mod requests;
mod sequence;

/// The scripts, put together as the library does it.
#[path = "../../../../lock-redis/src/store/scripts.rs"]
mod scripts;

/// The digests that [`scripts`] asks the library for.
mod digest {
    pub(crate) fn of(code: &str) -> String {
        sha1_smol::Sha1::from(code).digest().to_string()
    }
}

use std::time::Duration;

use lock_testkit::Missing;
use lock_testkit_servers::WallClock;
use lock_testkit_servers::redis::{RedisOptions, RedisServer};

use rand::rngs::StdRng;

use course::Course;
use pair::Pair;
use requests::Kind;
use sequence::Sequence;

/// The number of sequences on two sides that the default run tries, and of each kind on three.
const SEQUENCES: u64 = 500;
const OF_EACH_KIND: u64 = 300;

/// The time at which sequences begin.
const EPOCH: Duration = Duration::from_secs(1_763_703_842);

fn sequences(usual: u64) -> u64 {
    std::env::var("SEQUENCES").ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// A server and the clock that it goes by; `None`, loudly, where there is none.
async fn server() -> Option<(RedisServer, WallClock)> {
    // This thread, and the server that it starts, go behind whatever has a deadline, if they may.
    let _ = rustix::process::nice(15);
    match start().await {
        Ok(both) => Some(both),
        Err(missing) => {
            let required = std::env::var(lock_testkit::REQUIRE_VARIABLE).is_ok_and(|value| value == "1");
            assert!(!required, "LOCK_TESTKIT_REQUIRE=1, but the server is missing: {missing}");
            eprintln!("SKIPPED: {missing}");
            None
        }
    }
}

async fn start() -> Result<(RedisServer, WallClock), Missing> {
    let clock = WallClock::new()?;
    // Hashes keep their order, as the simulated ones do, and nothing ends before it is looked at. (So they are called since
    // before 7, and still.)
    let options = RedisOptions::new()
        .with_clock(&clock)
        .with_directive("hash-max-ziplist-entries", "100000")
        .with_directive("hash-max-ziplist-value", "100000");
    let server = RedisServer::start_with(&options).await?;
    let missing = |error: lock_testkit::HarnessError| Missing::new(error.to_string());
    let client = server.client().map_err(missing)?;
    client.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).await.map_err(missing)?;
    Ok((server, clock))
}

/// Runs sequences until the two differ; how they did.
async fn differ(pair: &mut Pair, sequences: u64) -> Option<String> {
    for seed in 0..sequences {
        if let Err(difference) = Course::new(pair, seed).run().await {
            return Some(format!("sequence {seed}: {difference}"));
        }
    }
    None
}

#[tokio::test]
async fn random_sequences_of_scripts_do_the_same_on_both() {
    let Some((server, clock)) = server().await else { return };
    let sequences = sequences(SEQUENCES);
    let mut pair = Pair::new(server.client().unwrap(), clock);
    assert_eq!(differ(&mut pair, sequences).await, None);
    assert!(pair.steps >= sequences * 10, "{} steps only", pair.steps);
}

#[tokio::test]
async fn a_clock_that_is_one_millisecond_off_is_noticed() {
    let Some((server, clock)) = server().await else { return };
    let mut pair = Pair::new(server.client().unwrap(), clock).with_lag(Duration::from_millis(1));
    assert!(differ(&mut pair, SEQUENCES).await.is_some());
}

/// Runs sequences on all three sides.
async fn agree(kind: fn(&mut StdRng) -> Kind) {
    let Some((server, clock)) = server().await else { return };
    let mut pair = Pair::new(server.client().unwrap(), clock);
    for seed in 0..sequences(OF_EACH_KIND) {
        pair.now = EPOCH;
        Sequence::new(&mut pair, kind, seed).run().await;
    }
}

#[tokio::test]
async fn random_sequences_on_a_mutex_do_the_same_on_all_three() {
    agree(|_| Kind::Mutex).await;
}

#[tokio::test]
async fn random_sequences_on_a_reentrant_lock_do_the_same_on_all_three() {
    agree(|_| Kind::Reentrant).await;
}

#[tokio::test]
async fn random_sequences_on_a_read_write_lock_do_the_same_on_all_three() {
    agree(|_| Kind::ReadWrite).await;
}

#[tokio::test]
async fn random_sequences_on_a_semaphore_do_the_same_on_all_three() {
    agree(Kind::semaphore).await;
}

/// For the server the whole batch is one moment.
#[tokio::test]
async fn grants_of_one_lock_in_one_batch_have_tokens_that_grow_until_there_is_no_room() {
    let Some((server, clock)) = server().await else { return };
    let mut pair = Pair::new(server.client().unwrap(), clock);
    pair.now = EPOCH;
    let mut keys = ["{one}", "{one}:q"].repeat(4);
    keys.extend(["{one}:tokens", "{one}:noted"]);
    let nonces = [1, 2, 3, 4].map(|number| format!("{number:032x}"));
    let args: Vec<_> = nonces.iter().flat_map(|nonce| [nonce, requests::CLIENTS[0], "5000", "{}", "P1/3"]).collect();
    let answer = pair.run(&scripts::ACQUIRE_HOLDERS_BATCH, &keys, &args).await.unwrap().as_text().unwrap();
    let lines: Vec<_> = answer.lines().collect();
    let [granted @ .., refused] = &lines[..] else { panic!("{answer:?}") };
    assert!(granted.len() == 3 && refused.ends_with('?'), "{answer:?}");
    let tokens: Vec<u64> = granted.iter().map(|line| line.split_once('+').unwrap().1.parse().unwrap()).collect();
    assert!(tokens.is_sorted_by(|before, after| before < after), "{tokens:?}");
}
