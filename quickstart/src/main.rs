//! Several workers share one counter under one lock. One of them is killed while it holds the lock, another one stalls
//! past the end of its lease and then writes; the counter comes out right all the same.

mod arguments;
mod fenced_counter;
mod place;

use std::error::Error;
use std::net::SocketAddr;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{ErrorKind, Locks};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use self::arguments::{Arguments, Wish};
use self::fenced_counter::{Caller, FencedCounter, Plan, Reply, Say, Wire};
use self::place::Place;

/// The lock that everybody wants.
const LOCK: &str = "quickstart/counter";

/// The time that a worker takes from reading the counter to writing it.
const WORK: Duration = Duration::from_millis(40);

/// The exit code after a command line that is wrong.
const USAGE: u8 = 2;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args_os().skip(1)) {
        Ok(Wish::Run(arguments)) => arguments,
        Ok(Wish::Help) => {
            print!("{}", arguments::HELP);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}\n\nFor more information, try '--help'.");
            return ExitCode::from(USAGE);
        }
    };
    let clean = match arguments.child {
        Some((worker, resource)) => child(&arguments, worker, resource).map(|()| true),
        None => run(&arguments),
    };
    match clean {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("  because: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

/// The whole show; whether the lock kept its promise.
#[tokio::main]
async fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error + Send + Sync>> {
    let place = arguments.place()?;
    // Find a missing server before any worker starts, and a configuration without tokens.
    let locks = place.connect().await?;
    locks.mutex(LOCK).fenced()?;
    let (count, ttl) = (arguments.workers, arguments.ttl);
    let kind = if arguments.in_processes { "processes" } else { "threads" };
    println!(
        "{count} {kind} share one counter under the lock {LOCK:?} on {}, TTL {} ms.",
        locks.backend_name(),
        ttl.as_millis()
    );
    println!("Each reads the counter, works for {} ms, and writes one more.\n", WORK.as_millis());
    println!("    time  who                   token      waited  what");

    // Everybody has had the lock once before the first of them dies. A stall lasts long enough for a waiter to notice.
    let all = count as usize;
    let resource = FencedCounter::new(Plan {
        kill: all + 2,
        stall: 2 * all + 1,
        stall_for: place.outlives(ttl) + Duration::from_secs(1),
    });
    let mut workers = JoinSet::new();
    if arguments.in_processes {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(resource.clone().serve(listener));
        for worker in 1..=count {
            workers.spawn(process(worker, arguments, address, resource.enlist(worker))?);
        }
    } else {
        for worker in 1..=count {
            let (place, resource, killed) = (place.clone(), resource.clone(), resource.enlist(worker));
            let rounds = arguments.rounds;
            workers.spawn_blocking(move || thread(worker, &place, resource, killed, rounds, ttl));
        }
    }
    while let Some(outcome) = workers.join_next().await {
        outcome??;
    }

    let verdict = resource.verdict();
    println!(
        "\n{} grants, longest wait {} ms, overlaps = {}, lost updates = {} (late accesses refused: {})",
        verdict.grants,
        verdict.longest_wait.as_millis(),
        verdict.overlaps,
        verdict.lost_updates,
        verdict.refused
    );
    Ok(verdict.is_clean())
}

/// One worker's rounds.
async fn work(worker: u32, locks: Locks, mut resource: Caller, rounds: u32, ttl: Duration) -> Outcome {
    let counter = locks.mutex(LOCK).with_ttl(ttl).fenced()?;
    for _ in 0..rounds {
        let asked = Instant::now();
        let guard = counter.lock().await?;
        let (token, waited, at) = (guard.fencing_token(), asked.elapsed(), fenced_counter::now());

        let order = resource.say(Say::Granted { worker, token, waited, at }).await?;
        let Reply::Value(value) = resource.say(Say::Read { token }).await? else { continue };
        let careless = if let Reply::Stall(time) = order {
            // The whole runtime stands still, renewals included. Then it writes without looking first: a program can
            // always be stopped between the look and the write, and only the fence helps against that.
            std::thread::sleep(time);
            true
        } else {
            tokio::time::sleep(WORK).await;
            false
        };
        let held_at = (!careless).then(fenced_counter::now);
        if careless || guard.is_held() {
            resource.say(Say::Write { token, value: value + 1, held_at }).await?;
        }
        match guard.release().await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotHeld => {
                resource.say(Say::Lost { token, reason: error.to_string() }).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A worker in a thread with its own runtime and its own client: a process in miniature.
///
/// When it is killed, its runtime ends where it stands, and with it the renewals and every release.
fn thread(
    worker: u32,
    place: &Place,
    resource: Arc<FencedCounter>,
    killed: oneshot::Receiver<()>,
    rounds: u32,
    ttl: Duration,
) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let locks = place.connect().await?;
        tokio::select! {
            biased;
            Ok(()) = killed => Ok(()),
            outcome = work(worker, locks, Caller::Here(resource), rounds, ttl) => outcome,
        }
    })
}

/// A worker in a process of its own.
fn process(
    worker: u32,
    arguments: &Arguments,
    resource: SocketAddr,
    killed: oneshot::Receiver<()>,
) -> std::io::Result<impl Future<Output = Outcome> + use<>> {
    let mut child = tokio::process::Command::new(std::env::current_exe()?)
        .args(&arguments.url)
        .args(["--rounds", &arguments.rounds.to_string(), "--ttl", &arguments.ttl.as_millis().to_string()])
        .args(["--child", &worker.to_string(), "--resource", &resource.to_string()])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    Ok(async move {
        tokio::select! {
            Ok(()) = killed => {
                child.start_kill()?;
                child.wait().await?;
                Ok(())
            }
            status = child.wait() => match status? {
                status if status.success() => Ok(()),
                status => Err(format!("worker {worker} ended with {status}").into()),
            },
        }
    })
}

/// The other side of [`process`]. One thread, so that a stall stops everything, as it does for a suspended machine.
#[tokio::main(flavor = "current_thread")]
async fn child(arguments: &Arguments, worker: u32, resource: SocketAddr) -> Outcome {
    let resource = Caller::There(Wire::new(TcpStream::connect(resource).await?));
    work(worker, arguments.place()?.connect().await?, resource, arguments.rounds, arguments.ttl).await
}
