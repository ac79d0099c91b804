//! The differences between the client crates: a server that hangs, and connections that are reset under load. Needs the feature
//! `zookeeper-async`.

use std::time::{Duration, Instant};

use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit_servers::zookeeper::{ZooKeeperEnsemble, ZooKeeperOptions};
use lock_zk::{SessionState, ZkLocks};

use crate::{Bench, Outcome, config};

const SESSION: Duration = Duration::from_secs(4);
/// Of the resets.
const LONG: Duration = Duration::from_secs(20);
const WAITERS: usize = 300;

#[derive(Clone, Copy)]
enum Crate {
    ZooKeeperClient,
    ZooKeeperAsync,
}

impl Crate {
    const ALL: [Self; 2] = [Self::ZooKeeperClient, Self::ZooKeeperAsync];

    fn name(self) -> &'static str {
        match self {
            Self::ZooKeeperClient => "zookeeper-client",
            Self::ZooKeeperAsync => "zookeeper-async",
        }
    }

    async fn connect(self, url: &str, session: Duration) -> Outcome<ZkLocks> {
        let config = config(url, session).with_prefix(self.name());
        Ok(match self {
            Self::ZooKeeperClient => ZkLocks::connect_with(config).await?,
            Self::ZooKeeperAsync => ZkLocks::connect_with_zookeeper_async(config).await?,
        })
    }
}

pub(crate) async fn run(bench: &Bench) -> Outcome {
    hung(bench).await?;
    resets(bench).await
}

async fn hung(bench: &Bench) -> Outcome {
    println!("\n## The client crates: the server of a session of {SESSION:?} hangs, two others go on\n");
    println!("| run | crate | session kept | first lock after, s |\n|---|---|---|---|");
    for run in 1..=bench.rounds.min(3) {
        for by in Crate::ALL {
            let ensemble = ZooKeeperEnsemble::start_with(&ZooKeeperOptions::new().for_benchmarks()).await?;
            let locks = by.connect(ensemble.url(), SESSION).await?;
            let _held = locks.mutex("held").lock().await?;
            let truth = ensemble.client().await.map_err(|error| error.to_string())?;
            let below = format!("/{}", by.name());
            let session = truth.sessions_below(&below).await.map_err(|error| error.to_string())?;
            truth.close().await.map_err(|error| error.to_string())?;
            let mut hung = None;
            for server in ensemble.servers() {
                let connected = server.connected_sessions().await.map_err(|error| error.to_string())?;
                if session.iter().any(|session| connected.contains(session)) {
                    hung = Some(server);
                }
            }
            let hung = hung.ok_or("the session is at no server")?;
            hung.stop().map_err(|error| error.to_string())?;
            let began = Instant::now();
            let mut kept = true;
            while began.elapsed() < SESSION * 5 {
                kept &= locks.session_state() != SessionState::Lost;
                if let Ok(Some(_)) = locks.mutex("after").try_lock().await {
                    break;
                }
            }
            kept &= locks.mutex("held").try_lock().await?.is_none();
            println!("| {run} | {} | {kept} | {:.1} |", by.name(), began.elapsed().as_secs_f64());
            hung.cont().map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

async fn resets(bench: &Bench) -> Outcome {
    println!("\n## The client crates: connections reset with {WAITERS} waiters on a session of {LONG:?}\n");
    println!("| crate | resets | sessions lost | longest time to the next lock, s |\n|---|---|---|---|");
    let resets = bench.rounds * 4;
    for by in Crate::ALL {
        let link = Proxy::to(bench.server.address(), Protocol::ZooKeeper)?;
        let locks = by.connect(&format!("zk://{}", link.address()), LONG).await?;
        let waiting: Vec<_> = (0..WAITERS)
            .map(|number| {
                let mutex = locks.semaphore(format!("waited for {number}"), 1);
                tokio::spawn(async move {
                    let held = mutex.acquire().await;
                    let second = mutex.acquire().await;
                    drop((held, second));
                })
            })
            .collect();
        let (mut lost, mut longest) = (0, Duration::ZERO);
        for _ in 0..resets {
            tokio::time::sleep(Duration::from_millis(200)).await;
            drop(link.inject(LinkFault::new(Toxic::Reset, Direction::Both)).applied(LONG).await);
            let began = Instant::now();
            let mut was_lost = false;
            while began.elapsed() < LONG * 2 {
                was_lost |= locks.session_state() == SessionState::Lost;
                if let Ok(Some(_)) = locks.mutex("next").try_lock().await {
                    break;
                }
            }
            lost += u32::from(was_lost);
            longest = longest.max(began.elapsed());
        }
        println!("| {} | {resets} | {lost} | {:.1} |", by.name(), longest.as_secs_f64());
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
    }
    Ok(())
}
