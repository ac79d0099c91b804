//! Copies of the benchmark's program, each of which is one client.

use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::Outcome;

/// A copy of this program. Killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts one with these environment variables, by which it knows what it is for.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(variables: &[(&str, &str)]) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.envs(variables.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
        Ok(Self { child, lines })
    }

    /// Says a line to it.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn say(&mut self, line: &str) -> Outcome {
        let input = self.child.stdin.as_mut().ok_or("no stdin")?;
        Ok(input.write_all(format!("{line}\n").as_bytes()).await?)
    }

    /// Returns its next line.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn line(&mut self) -> Outcome<String> {
        Ok(self.next_line().await?.ok_or("a child ended")?)
    }

    /// Returns its next line, or `None` if it has ended.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn next_line(&mut self) -> Outcome<Option<String>> {
        Ok(self.lines.next_line().await?)
    }

    /// Kills it (SIGKILL).
    ///
    /// # Errors
    /// If that is not possible.
    pub async fn kill(&mut self) -> Outcome {
        Ok(self.child.kill().await?)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If that is not possible.
    pub async fn ended(&mut self) -> Outcome<ExitStatus> {
        Ok(self.child.wait().await?)
    }
}
