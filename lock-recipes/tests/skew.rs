//! Jobs in processes whose wall clocks are a minute apart, on a real server.

#![cfg(test)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, stdin};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::Locks;
use lock_recipes::{Once, Outcome, Slot};
use lock_redis::RedisLocks;
use lock_testkit::faults::{ClockFault, WallClock};
use lock_testkit::testing::installed;
use lock_testkit_servers::redis::RedisServer;

/// The URL of the server, for a process that is to run jobs.
const SERVER: &str = "LOCK_RECIPES_SKEW_SERVER";
/// Set for a process that asks for slots by their numbers, and not by its clock.
const BY_NUMBER: &str = "LOCK_RECIPES_SKEW_BY_NUMBER";
const PERIOD: Duration = Duration::from_millis(50);
const SLOTS: usize = 60;
const PATIENCE: Duration = Duration::from_secs(30);
const MINUTE_MS: i64 = 60_000;

/// One of the processes: asks for slots when it is told to begin, and prints which of them it has run, and the time by its clock.
#[tokio::test]
async fn process() {
    let Ok(url) = std::env::var(SERVER) else { return };
    let locks: Locks = RedisLocks::connect(&url).await.unwrap().into();
    println!("ready");
    stdin().read_line(&mut String::new()).unwrap();
    let once = Once::new(locks.recorded("job").unwrap()).with_wait(PATIENCE);
    let is_by_number = std::env::var(BY_NUMBER).is_ok();
    let mut asked = BTreeSet::new();
    while asked.len() < SLOTS {
        let slot = if is_by_number { Slot::from(asked.len() as u64) } else { Slot::every(PERIOD, SystemTime::now()) };
        if !asked.insert(slot) {
            tokio::time::sleep(PERIOD / 10).await;
            continue;
        }
        let what = match once.run(slot, |_| async {}).await.unwrap() {
            Outcome::Ran(()) => "ran",
            Outcome::Skipped { slot: begun, .. } if begun >= slot => "skipped",
            other => panic!("slot {slot}: {other:?}"),
        };
        println!("{what} {slot}");
    }
    println!("clock {}", SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis());
}

/// The slots that a process has run, and those that it has skipped, and the time by its clock afterwards, in milliseconds.
struct Slots {
    ran: BTreeSet<u64>,
    skipped: BTreeSet<u64>,
    clock: i64,
}

/// Processes of their own that run jobs, each by one of these clocks; all of them begin when all are connected.
async fn slots<const N: usize>(url: &str, clocks: [&WallClock; N], is_by_number: bool) -> [Slots; N] {
    let processes = clocks.map(|clock| {
        let mut line = clock.prefix();
        line.push(std::env::current_exe().unwrap().into());
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).args(["--exact", "process", "--nocapture"]).env(SERVER, url);
        if is_by_number {
            command.env(BY_NUMBER, "");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    });
    let ended = tokio::task::spawn_blocking(move || {
        let ready = processes.map(|mut process| {
            let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
            while !said.next().expect("it should have connected").unwrap().ends_with("ready") {}
            (process, said)
        });
        let begun = ready.map(|(mut process, said)| {
            // It waits for the end of a line.
            drop(process.stdin.take());
            (process, said)
        });
        begun.map(|(mut process, said)| {
            let lines: Vec<_> = said.map(Result::unwrap).collect();
            assert!(process.wait().unwrap().success(), "{lines:?}");
            lines
        })
    });
    ended.await.unwrap().map(|lines| {
        let of = |what: &str| -> Vec<i64> {
            lines.iter().filter_map(|line| line.strip_prefix(what)?.trim().parse().ok()).collect()
        };
        let set = |what| of(what).into_iter().map(|slot| u64::try_from(slot).unwrap()).collect();
        Slots { ran: set("ran "), skipped: set("skipped "), clock: of("clock ")[0] }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_slot_runs_once_although_one_clock_is_a_minute_ahead() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let (Some(right), Some(wrong)) = (installed(WallClock::new()), installed(WallClock::new())) else { return };
    let minute = wrong.inject(ClockFault::ahead_by_ms(MINUTE_MS)).unwrap();
    let [behind, ahead] = slots(server.url(), [&right, &wrong], false).await;
    minute.heal().unwrap();
    assert_eq!((ahead.ran.len(), ahead.skipped.len()), (SLOTS, 0), "nobody begins a slot of the one that is ahead");
    assert_eq!(behind.ran.len() + behind.skipped.len(), SLOTS);
    assert!(behind.ran.is_disjoint(&ahead.ran), "a slot has run twice");
    let (last, first) = (behind.ran.iter().chain(&behind.skipped).max(), ahead.ran.first());
    assert!(last < first, "the clocks are not apart: {last:?}, {first:?}");
    // What the one behind asks for later is old: nothing runs, and nothing is waited for.
    let [later] = slots(server.url(), [&right], false).await;
    assert_eq!((later.ran.len(), later.skipped.len()), (0, SLOTS), "a slot has run that is older than the latest");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_both_ask_for_runs_once_although_one_clock_is_a_minute_ahead() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let (Some(right), Some(wrong)) = (installed(WallClock::new()), installed(WallClock::new())) else { return };
    let minute = wrong.inject(ClockFault::ahead_by_ms(MINUTE_MS)).unwrap();
    let [behind, ahead] = slots(server.url(), [&right, &wrong], true).await;
    minute.heal().unwrap();
    assert!(ahead.clock - behind.clock > MINUTE_MS / 2, "the clocks are not apart");
    let all: BTreeSet<_> = (0..SLOTS as u64).collect();
    for slots in [&behind, &ahead] {
        assert_eq!(&slots.ran | &slots.skipped, all, "each asks for every slot");
    }
    assert!(behind.ran.is_disjoint(&ahead.ran), "a slot has run twice");
    // Whoever is ahead in the line of slots runs all of them: none is passed over.
    assert_eq!(&behind.ran | &ahead.ran, all, "a slot has not run");
}
