//! Processes that stand still and go on, and directories for them: for the suite and for `lock-testkit-servers`.

use std::io;
use std::path::{Path, PathBuf};
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

/// Freezes a process that the caller has started and not yet waited for, until the guard is dropped.
pub(crate) fn freeze_child(pid: Pid) -> io::Result<Injected<'static>> {
    freeze(pid)?;
    let stands_still = !is_running(pid);
    let proof = stands_still.then(|| Proof::of(format!("process {} stands still", pid.as_raw_nonzero())));
    Ok(Injected::new("Freeze", OnChild { pid, proof: proof.unwrap_or_default() }))
}

struct OnChild {
    pid: Pid,
    proof: Proof,
}

impl Effect for OnChild {
    fn proof(&self) -> Proof {
        self.proof.clone()
    }

    fn heal(&mut self) {
        // A child that is gone needs no healing.
        let _ = thaw(self.pid);
    }
}
