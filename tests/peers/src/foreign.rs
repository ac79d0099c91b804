//! Libraries of other languages: a program each, which is told on its standard input what to do.

use std::future::Future;
use std::pin::Pin;
use std::process::Stdio;
use std::time::Duration;

use bench_support::Outcome;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::contender::{Contender, Scene};

/// A program that locks and releases. It says `ready` when it is connected; each line `SCENE TASKS MILLISECONDS` is answered by how
/// often its tasks did in a second. It ends with its input.
pub(crate) struct Foreign {
    name: String,
    has_tokens: bool,
    warm_up: Duration,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Foreign {
    /// Starts the program of this environment variable, with these arguments; `None` where the variable is not set, since what it
    /// needs is not here.
    pub(crate) async fn start(
        variable: &str,
        arguments: &[&str],
        name: &str,
        has_tokens: bool,
        warm_up: Duration,
    ) -> Outcome<Option<Box<dyn Contender>>> {
        let Ok(command) = std::env::var(variable) else {
            println!("ignored: {name}: {variable} is not set, so its toolchain is missing\n");
            return Ok(None);
        };
        let mut words = command.split_whitespace();
        let mut child = Command::new(words.next().ok_or("an empty command")?)
            .args(words)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().ok_or("no standard input")?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no standard output")?).lines();
        match lines.next_line().await? {
            Some(line) if line == "ready" => {}
            other => return Err(format!("{name} is not ready: {other:?}").into()),
        }
        let name = name.to_owned();
        Ok(Some(Box::new(Self { name, has_tokens, warm_up, input, lines, _child: child })))
    }
}

impl Contender for Foreign {
    fn name(&self) -> &str {
        &self.name
    }

    fn has_tokens(&self) -> bool {
        self.has_tokens
    }

    fn warm_up(&self) -> Duration {
        self.warm_up
    }

    fn rate(&mut self, scene: Scene, tasks: usize, time: Duration) -> Pin<Box<dyn Future<Output = Outcome<f64>> + '_>> {
        Box::pin(async move {
            let order = format!("{} {tasks} {}\n", scene.word(), time.as_millis());
            self.input.write_all(order.as_bytes()).await?;
            let answer = self.lines.next_line().await?.ok_or_else(|| format!("{} has ended", self.name))?;
            Ok(answer.parse()?)
        })
    }
}
