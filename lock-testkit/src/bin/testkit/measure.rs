//! The time and memory that it takes to judge a long history.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::Instant;

use lock_testkit::checker::{Rules, Verdict, check};
use lock_testkit::history::History;

/// The number of events in one turn of the made-up run.
const EVENTS_PER_TURN: usize = 6;
const LOCKS: usize = 20;
const WORKERS: usize = 50;
const MICROSECOND: u64 = 1_000;

/// Writes a history of contended locks to a file, reads it, judges it, and says what that took.
pub(crate) fn measure(events: usize) -> Result<Verdict, Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("testkit-measure-{}.jsonl", std::process::id()));
    let outcome = write(&path, events).and_then(|()| judge(&path));
    std::fs::remove_file(&path)?;
    outcome
}

fn judge(path: &std::path::Path) -> Result<Verdict, Box<dyn Error>> {
    let began = Instant::now();
    let history = History::read([path])?;
    let read = began.elapsed();
    let judgement = check(&history, None);
    println!("{judgement}");
    println!("read in {read:.1?}, judged in {:.1?}; {}", began.elapsed() - read, peak_memory());
    Ok(judgement.verdict)
}

/// Returns the peak memory by `/proc`; unknown on systems without it.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.map_or_else(|| "peak memory unknown".to_owned(), |peak| format!("peak memory {}", peak.trim()))
}

/// Each lock goes from worker to worker; the next one always waits already. One fault, so that the verdict can be Ok.
fn write(path: &std::path::Path, events: usize) -> Result<(), Box<dyn Error>> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut rules = Rules::default();
    rules.fifo = true;
    let rules = serde_json::to_string(&rules)?;
    writeln!(file, r#"{{"t":0,"proc":"main","op":"run","backend":"made up","rules":{rules}}}"#)?;
    for (t, phase) in [(1, "start"), (2, "heal")] {
        writeln!(
            file,
            r#"{{"t":{t},"proc":"main","op":"fault","id":"f","phase":"{phase}","name":"none","target":"server","proof":"made up"}}"#
        )?;
    }
    let turns = events / EVENTS_PER_TURN;
    // A hold takes 100 µs, and one that is asked for waits for its predecessor's end.
    for turn in 0..turns {
        let (lock, round) = (turn % LOCKS, turn / LOCKS);
        let worker = (turn + round) % WORKERS;
        let start = 20_000_000_000 + (round * 100) as u64 * MICROSECOND + lock as u64;
        let call = |t: u64, op: &str, rest: &str| {
            format!(r#"{{"t":{t},"proc":"w{worker}","op":"{op}","id":"w{worker}.{turn}",{rest}}}"#)
        };
        let asked = start - 90 * MICROSECOND;
        let ask = format!(
            r#""phase":"invoke","owner":"w{worker}.{turn}","res":"lock{lock}","kind":"mutex","ttl":2000000000,"wait":5000000000"#
        );
        writeln!(file, "{}", call(asked, "acquire", &ask))?;
        let deadline = start + 2_000_000_000;
        let granted =
            format!(r#""phase":"ok","token":{},"grant":"{turn:032x}","held":true,"deadline":{deadline}"#, round + 1);
        writeln!(file, "{}", call(start + 10 * MICROSECOND, "acquire", &granted))?;
        for step in [30, 60] {
            let check = format!(r#""held":true,"deadline":{deadline}"#);
            writeln!(file, "{}", call(start + step * MICROSECOND, "check", &check))?;
        }
        writeln!(file, "{}", call(start + 80 * MICROSECOND, "release", r#""phase":"invoke","held":true"#))?;
        writeln!(file, "{}", call(start + 95 * MICROSECOND, "release", r#""phase":"ok""#))?;
    }
    let end = 21_000_000_000 + (turns / LOCKS * 100) as u64 * MICROSECOND;
    writeln!(file, r#"{{"t":{end},"proc":"main","op":"end"}}"#)?;
    Ok(file.flush()?)
}
