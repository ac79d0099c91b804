//! Processes that stand still and go on, and directories for them: for the suite and for `lock-testkit-servers`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lock_testkit_proxy::{Effect, Injected, Proof};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// The time that a signal to a process may take until its effect can be seen: one that waits for a disk stops afterwards.
const FREEZING: Duration = Duration::from_secs(10);

/// The time that is waited where there is no `/proc`, so that no effect can be seen.
const UNSEEN: Duration = Duration::from_secs(1);

/// Freezes a process of ours (SIGSTOP), and waits until it is frozen.
///
/// # Errors
/// If it is gone, or not ours.
pub fn freeze(pid: Pid) -> io::Result<()> {
    kill_process(pid, Signal::STOP)?;
    let began = Instant::now();
    let longest = if Path::new("/proc/self/stat").exists() { FREEZING } else { UNSEEN };
    while is_running(pid) && began.elapsed() < longest {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Lets a frozen process go on (SIGCONT).
///
/// # Errors
/// If it is gone, or not ours.
pub fn thaw(pid: Pid) -> io::Result<()> {
    Ok(kill_process(pid, Signal::CONT)?)
}

/// Whether it runs. Without `/proc`, a frozen process and one that its keeper has not yet looked after count as running.
pub fn is_running(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    test_kill_process(pid).is_ok() && !matches!(state, Some('Z' | 'X' | 'T'))
}

/// A new directory of the suite's, for something of this name.
///
/// # Errors
/// If there is no room for one.
pub fn fresh_directory(name: &str) -> io::Result<PathBuf> {
    static DIRECTORIES: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = DIRECTORIES.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("lock-testkit-{name}-{}-{number}", std::process::id()));
        match std::fs::create_dir(&directory) {
            // Left by a process that had our id before.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            outcome => return outcome.map(|()| directory),
        }
    }
}

/// Lets the process `$0` go on if its own input ends without a word: then the suite was killed, and a process that stands still
/// would never see that it is alone. A signal to the whole group, as that of Ctrl-C, does not end this one first.
const WATCHDOG: &str = r#"trap '' HUP INT QUIT TERM; read -r healed || kill -CONT "$0""#;

/// Freezes a process that the caller has started and not yet waited for, until the guard is dropped or the suite ends.
pub(crate) fn freeze_child(pid: Pid) -> io::Result<Injected<'static>> {
    let mut watchdog = Command::new("sh");
    watchdog.args(["-c", WATCHDOG, &pid.as_raw_nonzero().to_string()]);
    let watchdog = watchdog.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let mut child = OnChild { pid, watchdog, proof: Proof::default() };
    // What cannot be frozen is let go on, by the watchdog too.
    freeze(pid).inspect_err(|_| child.heal())?;
    if !is_running(pid) {
        child.proof = Proof::of(format!("process {} stands still", pid.as_raw_nonzero()));
    }
    Ok(Injected::new("Freeze", child))
}

struct OnChild {
    pid: Pid,
    watchdog: Child,
    proof: Proof,
}

impl Effect for OnChild {
    fn proof(&self) -> Proof {
        self.proof.clone()
    }

    fn heal(&mut self) {
        // A child that is gone needs no healing.
        let _ = thaw(self.pid);
        // The watchdog ends at this word. Without it, it would send a signal to whichever process has the number by then.
        let _ = self.watchdog.stdin.take().map(|mut stdin| stdin.write_all(b"healed\n"));
        let _ = self.watchdog.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{PROMPTLY, eventually};

    /// Whether a process ignores SIGTERM; whatever it does, where there is no `/proc`.
    fn ignores_termination(pid: Pid) -> bool {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())) else { return true };
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & (1 << 14) != 0)
    }

    #[tokio::test]
    async fn a_frozen_child_goes_on_when_it_is_healed_and_when_the_suite_is_killed() {
        for suite_is_killed in [false, true] {
            let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
            let pid = Pid::from_raw(sleeper.id().cast_signed()).unwrap();
            let mut watchdog = Command::new("sh");
            watchdog.args(["-c", WATCHDOG, &pid.as_raw_nonzero().to_string()]).stdin(Stdio::piped());
            if suite_is_killed {
                let mut watchdog = watchdog.spawn().unwrap();
                freeze(pid).unwrap();
                assert!(!is_running(pid));
                // As the kernel does for a suite that was killed with its group.
                let own = Pid::from_raw(watchdog.id().cast_signed()).unwrap();
                eventually("the watchdog runs", PROMPTLY, async || ignores_termination(own)).await;
                kill_process(own, Signal::TERM).unwrap();
                drop(watchdog.stdin.take());
                watchdog.wait().unwrap();
            } else {
                let frozen = freeze_child(pid).unwrap();
                assert!(!is_running(pid));
                drop(frozen);
            }
            eventually("it goes on", PROMPTLY, async || is_running(pid)).await;
            sleeper.kill().unwrap();
            sleeper.wait().unwrap();
        }
    }
}
