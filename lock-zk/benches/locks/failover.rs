//! The cost of a dead leader and of a dead holder: an ensemble of three, sessions of 4 s.

use std::time::{Duration, Instant};

use lock_testkit_servers::zookeeper::{ZooKeeperEnsemble, ZooKeeperOptions};

use crate::processes::Process;
use crate::stats::micros;
use crate::{Bench, Outcome, locks};

const SESSION: Duration = Duration::from_secs(4);
const HELD: usize = 100;
const WAITERS: usize = 20;

pub(crate) async fn run(bench: &Bench) -> Outcome {
    leader(bench).await?;
    holder(bench).await
}

async fn leader(bench: &Bench) -> Outcome {
    println!("\n## Death of the leader, {HELD} locks held, {WAITERS} waiters\n");
    println!(
        "| run | another leader after, ms | longest gap between two turns, ms | locks lost | waiters that lost their place | bar |"
    );
    println!("|---|---|---|---|---|---|");
    for run in 1..=bench.rounds.min(3) {
        let ensemble = ZooKeeperEnsemble::start_with(&ZooKeeperOptions::new().for_benchmarks()).await?;
        let (a, b) = (locks(ensemble.url(), SESSION).await?, locks(ensemble.url(), SESSION).await?);
        let mut held = Vec::new();
        for number in 0..HELD {
            held.push(a.mutex(format!("held {number}")).lock().await?);
        }
        for _ in 0..WAITERS {
            let mutex = b.mutex("held 0");
            tokio::spawn(async move { mutex.lock().await });
        }
        let line = async || {
            Ok::<_, lock_zk::Error>(
                a.mutex("held 0").inspect().await?.waiters.into_iter().map(|w| w.attempt).collect::<Vec<_>>(),
            )
        };
        while line().await?.len() < WAITERS {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let before = line().await?;
        let turns = tokio::spawn(turns(b.clone(), SESSION * 2));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let leader = ensemble.leader().await.map_err(|error| error.to_string())?;
        let killed = Instant::now();
        leader.kill().map_err(|error| error.to_string())?;
        ensemble.until_another_leader(leader).await.map_err(|error| error.to_string())?;
        let election = killed.elapsed();
        let gap = turns.await??;
        let lost = held.iter().filter(|guard| !guard.is_held()).count();
        let after = line().await?;
        let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
        println!(
            "| {run} | {:.0} | {:.0} | {lost} | {moved} | ≤ 1,500; 0; 0 |",
            election.as_secs_f64() * 1e3,
            gap.as_secs_f64() * 1e3
        );
    }
    Ok(())
}

/// Locks and releases for this long; the longest time from one turn to the next.
async fn turns(locks: lock_zk::ZkLocks, time: Duration) -> Outcome<Duration> {
    let (mutex, began) = (locks.mutex("turns"), Instant::now());
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while began.elapsed() < time {
        let held = mutex.lock().await?;
        longest = longest.max(last.elapsed());
        last = Instant::now();
        // A lost answer is repeated in the background; the next turn tells when it has come.
        drop(held.release().await);
    }
    Ok(longest)
}

async fn holder(bench: &Bench) -> Outcome {
    println!("\n## Death of a holder (SIGKILL), session of 4 s, tick of 0.2 s\n");
    println!("| run | until the next holder, s | bar |\n|---|---|---|");
    let url = bench.server.url();
    let mut times = Vec::new();
    for run in 1..=bench.rounds.min(3) {
        let next = locks(url, SESSION).await?;
        let mut process = Process::start(url, SESSION).await?;
        process.say("killed").await?;
        process.line().await?;
        let mutex = next.mutex("killed");
        let waiting = tokio::spawn(async move { mutex.lock().await });
        while next.mutex("killed").inspect().await?.waiters.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let began = Instant::now();
        process.kill().await?;
        let guard = waiting.await??;
        times.push(began.elapsed());
        println!("| {run} | {:.2} | ≤ {:.1} |", began.elapsed().as_secs_f64(), SESSION.as_secs_f64() + 0.4);
        guard.release().await?;
    }
    println!("\nMedian: {:.2} s.", micros(&mut times, 0.5) / 1e6);
    Ok(())
}
