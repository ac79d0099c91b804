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
        let mut program = Command::new(words.next().ok_or("an empty command")?);
        program.args(words).args(arguments);
        Ok(Some(Box::new(Self { has_tokens, warm_up, ..Self::run(&mut program, name).await? })))
    }

    /// Starts a program.
    pub(crate) async fn run(program: &mut Command, name: &str) -> Outcome<Self> {
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let input = child.stdin.take().ok_or("no standard input")?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no standard output")?).lines();
        match lines.next_line().await? {
            Some(line) if line == "ready" => {}
            other => return Err(format!("{name} is not ready: {other:?}").into()),
        }
        Ok(Self { name: name.to_owned(), has_tokens: false, warm_up: Duration::ZERO, input, lines, _child: child })
    }
}

impl Foreign {
    /// Tells it what to do.
    pub(crate) async fn order(&mut self, scene: Scene, tasks: usize, time: Duration) -> Outcome {
        let order = format!("{} {tasks} {}\n", scene.word(), time.as_millis());
        Ok(self.input.write_all(order.as_bytes()).await?)
    }

    /// Waits until it has done that, and returns its rate.
    pub(crate) async fn answer(&mut self) -> Outcome<f64> {
        let answer = self.lines.next_line().await?.ok_or_else(|| format!("{} has ended", self.name))?;
        Ok(answer.parse()?)
    }
}

impl Contender for Foreign {
    fn name(&self) -> &str {
        &self.name
    }

    fn has_tokens(&self) -> bool {
        self.has_tokens
    }

    fn takes_part(&self, scene: Scene) -> bool {
        scene != Scene::Processes
    }

    fn warm_up(&self) -> Duration {
        self.warm_up
    }

    fn rate(&mut self, scene: Scene, tasks: usize, time: Duration) -> Pin<Box<dyn Future<Output = Outcome<f64>> + '_>> {
        Box::pin(async move {
            self.order(scene, tasks, time).await?;
            self.answer().await
        })
    }
}
