//! Contenders of this program, also by several processes: the same program again, which is told what to do as a [`Foreign`] one is.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bench_support::Outcome;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::contender::{Contender, Scene};
use crate::foreign::Foreign;

/// The word by which this program knows that it is one of several.
pub(crate) const CHILD: &str = "child";

/// A contender of this process, and where others find their own.
struct Processes {
    local: Box<dyn Contender>,
    server: &'static str,
    urls: Vec<String>,
    /// Its number among the contenders of this server.
    index: usize,
}

/// Lets these contenders take part by several processes too.
pub(crate) fn also(
    server: &'static str,
    urls: &[String],
    contenders: Vec<Box<dyn Contender>>,
) -> Vec<Box<dyn Contender>> {
    let also = |(index, local)| Box::new(Processes { local, server, urls: urls.to_vec(), index }) as Box<dyn Contender>;
    contenders.into_iter().enumerate().map(also).collect()
}

impl Contender for Processes {
    fn name(&self) -> &str {
        self.local.name()
    }

    fn has_tokens(&self) -> bool {
        self.local.has_tokens()
    }

    fn is_ours(&self) -> bool {
        self.local.is_ours()
    }

    fn takes_part(&self, scene: Scene) -> bool {
        self.local.takes_part(scene)
    }

    fn warm_up(&self) -> Duration {
        self.local.warm_up()
    }

    fn rate(&mut self, scene: Scene, tasks: usize, time: Duration) -> Pin<Box<dyn Future<Output = Outcome<f64>> + '_>> {
        if scene != Scene::Processes {
            return self.local.rate(scene, tasks, time);
        }
        Box::pin(async move {
            let mut running = Vec::new();
            for _ in 0..tasks {
                let mut program = Command::new(std::env::current_exe()?);
                program.arg(CHILD).arg(self.server).arg(self.index.to_string()).args(&self.urls);
                running.push(Foreign::run(&mut program, self.name()).await?);
            }
            for process in &mut running {
                process.order(scene, 1, time).await?;
            }
            let mut rate = 0.0;
            for process in &mut running {
                rate += process.answer().await?;
            }
            Ok(rate)
        })
    }
}

/// Does what its standard input says, with this contender.
///
/// # Errors
/// The contender's.
pub(crate) async fn serve(contender: &mut dyn Contender) -> Outcome {
    println!("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<_> = line.split_whitespace().collect();
        let [scene, tasks, milliseconds] = words[..] else { return Err(format!("{line:?} is no order").into()) };
        let scene = Scene::of_word(scene).ok_or_else(|| format!("there is no scene {scene:?}"))?;
        let time = Duration::from_millis(milliseconds.parse()?);
        println!("{}", contender.rate(scene, tasks.parse()?, time).await?);
    }
    Ok(())
}
