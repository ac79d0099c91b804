//! 64 tasks of one process on one name: hand-overs and the requests that each costs, beside the textbook's recipe on the
//! same client crate, and Curator's `InterProcessMutex` with 64 threads where its jars are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::curator::Curator;
use crate::plain::Plain;
use crate::turns::{TASKS, Turns, measure};
use crate::{Bench, Outcome};

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Contended hand-over, {TASKS} tasks of one process\n");
    let (plain, locks) = (Plain::connect(bench, "/plain/handover").await?, bench.locks().await?);
    let mutex = locks.mutex("handover");
    let mut curator = Curator::compile()?;
    let mut turns: [Turns; 3] = Default::default();
    for round in 0..=bench.rounds {
        let mut now = [Turns::default(), Turns::default(), Turns::default()];
        measure(bench, &mut now[0], async || {
            let plain = plain.clone();
            counted(bench.round, move || {
                let plain = plain.clone();
                async move { plain.turn().await }
            })
            .await
        })
        .await?;
        measure(bench, &mut now[1], async || {
            let mutex = mutex.clone();
            counted(bench.round, move || {
                let mutex = mutex.clone();
                async move { Ok(mutex.lock().await?.release().await?) }
            })
            .await
        })
        .await?;
        if let Some(curator) = &mut curator {
            now[2] = curator.turns(bench).await?;
        }
        // The first round warms the server up.
        if round > 0 {
            for (sum, now) in turns.iter_mut().zip(now) {
                sum.count += now.count;
                sum.requests += now.requests;
                sum.time += now.time;
            }
        }
    }
    println!("| variant | hand-overs/s | ÷ Curator | requests per hand-over | bar |\n|---|---|---|---|---|");
    let names = ["textbook recipe, zookeeper-client", "lock + release", "Curator, 64 threads"];
    let bars = ["", "≥ 1.0 (aim 3.0) of Curator; ≤ 3 requests", ""];
    let base = turns[2].per_second();
    for ((name, turns), bar) in names.iter().zip(&turns).zip(bars).filter(|((_, turns), _)| turns.count > 0) {
        let ratio = if base > 0.0 { format!("{:.2}", turns.per_second() / base) } else { "–".to_owned() };
        let requests = turns.requests as f64 / turns.count as f64;
        println!("| {name} | {:.0} | {ratio} | {requests:.2} | {bar} |", turns.per_second());
    }
    if curator.is_none() {
        println!("\nCurator was left out: CURATOR_CLASS_PATH names no jars of it.");
    }
    Ok(())
}

/// Lets the tasks take turns for this long; how many they had.
async fn counted<F, T>(time: Duration, turn: F) -> Outcome<u64>
where
    F: Fn() -> T + Send + Clone + 'static,
    T: Future<Output = Outcome> + Send,
{
    let (over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (over, count, turn) = (over.clone(), count.clone(), turn.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    turn().await?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Outcome::Ok(())
            })
        })
        .collect();
    tokio::time::sleep(time).await;
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await??;
    }
    Ok(count.load(Ordering::Relaxed))
}
