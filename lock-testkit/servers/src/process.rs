//! A server process that dies with the suite, whatever ends the suite.
//!
//! Every server is such a process, with a directory, and with a shell beside it that ends both when the suite ends. `own.rs` is what
//! each type of server has of it, and `deployment.rs` how a harness starts any of them.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lock_testkit::processes::{freeze, fresh_directory, is_running, thaw};
use rustix::process::Pid;

/// The keeper of a server: a shell that starts and kills it when told to on its standard input. The end of that input,
/// which comes when the suite closes the pipe and also when the suite is killed, ends the server and removes its
/// directory, whose path is the keeper's `$0`. The server's command is the rest of its arguments.
///
/// (A parent-death signal would do the same, but needs `unsafe` code; a destructor alone does not run on SIGKILL.)
const KEEPER: &str = r#"
end() {
    [ -z "$server" ] || { kill -9 "$server"; wait "$server"; }
    server=
}
trap 'end; rm -rf "$0"' EXIT
trap 'exit 1' HUP INT TERM
while read -r word; do
    end
    case $word in
        start) "$@" </dev/null >>"$0/output" 2>&1 & server=$!; echo $server ;;
        kill) echo gone ;;
    esac
done
"#;

/// A server process and the directory that it has for itself. Both are gone when this is dropped, and also when the
/// suite is killed.
#[derive(Debug)]
pub(crate) struct Process {
    directory: PathBuf,
    keeper: Mutex<Keeper>,
}

#[derive(Debug)]
struct Keeper {
    shell: Child,
    /// `None` only while this is dropped: closing it ends the keeper.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    server: Option<Pid>,
}

impl Process {
    /// A server that does not run yet. `prepare` puts what it needs into its directory, and answers its command line:
    /// the program, then the arguments.
    ///
    /// # Errors
    /// If a directory, a file or the keeper cannot be made.
    pub(crate) fn new(name: &str, prepare: impl FnOnce(&Path) -> io::Result<Vec<OsString>>) -> io::Result<Self> {
        let directory = fresh_directory(name)?;
        let keeper = prepare(&directory).and_then(|command| Keeper::hire(&directory, &command));
        match keeper {
            Ok(keeper) => Ok(Self { directory, keeper: Mutex::new(keeper) }),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&directory);
                Err(error)
            }
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Starts the server, after killing it if it runs.
    pub(crate) fn start(&self) -> io::Result<()> {
        let mut keeper = self.keeper();
        keeper.server = None;
        let answer = keeper.order("start")?;
        keeper.server = answer.parse().ok().and_then(Pid::from_raw);
        keeper.server.map(drop).ok_or_else(|| io::Error::other(format!("{answer:?} is no process id")))
    }

    /// Kills the server (SIGKILL), also a frozen one, and waits until it is gone. Its directory stays.
    pub(crate) fn kill(&self) -> io::Result<()> {
        let mut keeper = self.keeper();
        keeper.server = None;
        keeper.order("kill").map(drop)
    }

    /// Freezes the server (SIGSTOP), and waits until it is: it may take another step before the signal reaches it.
    pub(crate) fn freeze(&self) -> io::Result<()> {
        freeze(self.server()?)
    }

    /// Lets a frozen server go on (SIGCONT).
    pub(crate) fn thaw(&self) -> io::Result<()> {
        thaw(self.server()?)
    }

    fn server(&self) -> io::Result<Pid> {
        self.keeper().server.ok_or_else(|| io::Error::other("the server does not run"))
    }

    /// The process id, from the start until the server is killed by [`kill`](Process::kill).
    pub(crate) fn pid(&self) -> Option<u32> {
        self.keeper().server.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok())
    }

    /// Whether the server could answer: it has been started, has not ended by itself, and is not frozen.
    pub(crate) fn is_running(&self) -> bool {
        self.keeper().server.is_some_and(is_running)
    }

    fn keeper(&self) -> MutexGuard<'_, Keeper> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the pipe to the keeper and does nothing else, as the kernel does for a suite that was killed.
    #[cfg(test)]
    pub(crate) fn abandon(&self) {
        self.keeper().orders.take();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let keeper = self.keeper.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(keeper.orders.take());
        let _ = keeper.shell.wait();
        // For the case that somebody killed the keeper. Best effort: a directory that is left does no harm.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Keeper {
    fn hire(directory: &Path, command: &[OsString]) -> io::Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", KEEPER]).arg(directory).args(command);
        // What the server says goes into its directory; the shell itself would only remark that a job was killed.
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let orders = shell.stdin.take();
        let answers = shell.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { shell, orders, answers: BufReader::new(answers), server: None })
    }

    /// Gives an order and waits for the answer, which takes milliseconds.
    fn order(&mut self, word: &str) -> io::Result<String> {
        let orders = self.orders.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(orders, "{word}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        if answer.is_empty() {
            return Err(io::Error::other("the keeper of the server is gone"));
        }
        Ok(answer.trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use lock_testkit::testing::{PROMPTLY, eventually};
    use rustix::process::test_kill_process;

    use super::*;

    fn sleeper() -> Process {
        let process = Process::new("sleeper", |directory| {
            std::fs::write(directory.join("kept"), "")?;
            Ok(vec!["sleep".into(), "1000".into()])
        });
        let process = process.unwrap();
        process.start().unwrap();
        process
    }

    fn pid_of(process: &Process) -> Pid {
        Pid::from_raw(i32::try_from(process.pid().unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn a_process_lives_as_long_as_its_handle() {
        let process = sleeper();
        let first = pid_of(&process);
        assert!(is_running(first) && process.is_running());
        process.start().unwrap();
        assert!(!is_running(first), "a second start ends the first process");
        let (pid, directory) = (pid_of(&process), process.directory().to_owned());
        process.freeze().unwrap();
        assert!(!process.is_running());
        drop(process);
        assert!(test_kill_process(pid).is_err() && !directory.exists());
    }

    #[test]
    fn a_killed_process_keeps_its_directory_until_the_handle_is_dropped() {
        let process = sleeper();
        let (pid, directory) = (pid_of(&process), process.directory().to_owned());
        process.kill().unwrap();
        assert!(test_kill_process(pid).is_err() && !process.is_running() && process.pid().is_none());
        assert!(process.thaw().is_err());
        assert!(directory.join("kept").exists());
        drop(process);
        assert!(!directory.exists());
    }

    #[tokio::test]
    async fn a_process_that_ended_by_itself_is_noticed() {
        let process = Process::new("true", |_| Ok(vec!["true".into()])).unwrap();
        process.start().unwrap();
        eventually("its end", PROMPTLY, async || !process.is_running()).await;
    }

    #[tokio::test]
    async fn a_process_does_not_outlive_a_suite_that_was_killed() {
        for killed_before in [false, true] {
            let process = sleeper();
            let (pid, directory) = (pid_of(&process), process.directory().to_owned());
            if killed_before {
                process.kill().unwrap();
            }
            process.abandon();
            let gone = async || !is_running(pid) && !directory.exists();
            eventually("the process and its directory are gone", PROMPTLY, gone).await;
        }
    }
}
