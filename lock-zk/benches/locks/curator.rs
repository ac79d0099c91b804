//! Curator, where its jars are: one Java process with 64 threads, which takes its turn among the variants.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::turns::{TASKS, Turns, measure};
use crate::{Bench, Outcome};

/// The class path with Curator's recipes, framework and client, and what they need.
const CLASS_PATH: &str = "CURATOR_CLASS_PATH";

pub(crate) struct Curator {
    class_path: String,
    running: Option<(Child, ChildStdin, Lines<BufReader<ChildStdout>>)>,
}

impl Curator {
    /// Compiles the program; `None` if there is no Curator here.
    pub(crate) fn compile() -> Outcome<Option<Self>> {
        let Ok(jars) = std::env::var(CLASS_PATH) else { return Ok(None) };
        let classes = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/locks/Turns.java");
        let mut javac = std::process::Command::new("javac");
        let compiled = javac.args(["-cp", &jars, "-d"]).arg(&classes).arg(source).status()?;
        if !compiled.success() {
            return Err(format!("{CLASS_PATH} is set, but javac failed: {compiled}").into());
        }
        Ok(Some(Self { class_path: format!("{}:{jars}", classes.display()), running: None }))
    }

    /// Lets the threads take turns for one round.
    pub(crate) async fn turns(&mut self, bench: &Bench) -> Outcome<Turns> {
        if self.running.is_none() {
            let mut child = Command::new("java")
                .args(["-cp", &self.class_path, "Turns", bench.server.address(), &TASKS.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()?;
            let input = child.stdin.take().ok_or("no stdin")?;
            let mut lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
            lines.next_line().await?.ok_or("Curator ended before it was ready")?;
            self.running = Some((child, input, lines));
        }
        let (_, input, lines) = self.running.as_mut().ok_or("Curator does not run")?;
        let mut turns = Turns::default();
        measure(bench, &mut turns, async || {
            input.write_all(format!("{}\n", bench.round.as_millis()).as_bytes()).await?;
            Ok(lines.next_line().await?.ok_or("Curator ended without a count")?.parse()?)
        })
        .await?;
        Ok(turns)
    }
}
