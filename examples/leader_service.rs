//! A service in several processes of which one leads: `GET /readyz` is 200 at the leader and 503 elsewhere, `GET /leader` tells everywhere who
//! leads and where.
//!
//! `cargo run --example leader_service -- redis://127.0.0.1:6379` or `-- zk://127.0.0.1:2181`. It starts three processes, each behind a link of
//! its own. Then it kills the one that leads, stops the next one and cuts the third one off, asks all of them meanwhile, and fails if two
//! are ready at once or nobody is for too long.

use std::convert::Infallible;
use std::error::Error;
use std::process::Stdio;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use clap::Parser;
use lock_core::Locks;
use lock_recipes::{Election, Term};
use lock_redis::RedisLocks;
use lock_testkit::processes::{freeze, thaw};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_zk::{ZkConfig, ZkLocks};
use rustix::process::Pid;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The time after which another one leads when the leader has gone.
const TTL: Duration = Duration::from_secs(3);
/// The time in which somebody is to lead, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Args {
    /// The server of the locks.
    url: String,
    /// Be one of the processes.
    #[arg(long, hide = true)]
    worker: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let args = Args::parse();
    if args.worker { serve(&args.url).await } else { watch(&args.url).await }
}

// One process. This is what is to be copied.

async fn serve(url: &str) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let election = Election::new(open(url).await?.recorded("leader")?.with_ttl(TTL)).with_address(&address);
    println!("{address}");
    let app = Router::new().route("/readyz", get(readyz)).route("/leader", get(leader)).with_state(election.clone());
    tokio::spawn(axum::serve(listener, app).into_future());
    let address = &address;
    let lead = |term: Term| async move {
        println!("{address} leads in term {}", term.number());
        // Here is what a leader does. It is dropped in time when it leads no more.
        std::future::pending::<Infallible>().await
    };
    match election.run(lead).await? {}
}

/// Asked again and again by what sends requests to the leader. The answer is computed from the lease and the clock.
async fn readyz(State(election): State<Election>) -> StatusCode {
    if election.is_leading() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

async fn leader(State(election): State<Election>) -> Response {
    match election.leader().await {
        Ok(Some(leader)) => Json(json!({ "term": leader.term, "address": leader.address })).into_response(),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

async fn open(url: &str) -> Outcome<Locks> {
    match url.split_once(':') {
        Some(("redis", _)) => Ok(RedisLocks::connect(url).await?.into()),
        Some(("zk", _)) => Ok(ZkLocks::connect_with(ZkConfig::new(url).with_session_timeout(2 * TTL)).await?.into()),
        _ => Err(format!("{url:?} is none of redis://… and zk://…").into()),
    }
}

// The three of them, and what is done to them.

/// One of the processes.
struct Member {
    link: Proxy,
    process: Child,
    address: String,
}

impl Member {
    async fn start(url: &str) -> Outcome<Self> {
        let (scheme, server) = url.split_once("://").ok_or("a URL has a scheme")?;
        let protocol = if scheme == "zk" { Protocol::ZooKeeper } else { Protocol::Resp };
        let link = Proxy::to(server.trim_end_matches('/'), protocol)?;
        let mut process = Command::new(std::env::current_exe()?)
            .args([format!("{scheme}://{}", link.address()), "--worker".to_owned()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = process.stdout.take().ok_or("a process without an output")?;
        let mut lines = BufReader::new(output).lines();
        let address = lines.next_line().await?.ok_or("a process has ended at once")?;
        // Its later lines are shown. A pipe that nobody reads would end it.
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                println!("{line}");
            }
        });
        Ok(Self { link, process, address })
    }

    fn pid(&self) -> Outcome<Pid> {
        let pid = self.process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(pid.ok_or("the process has ended")?)
    }
}

/// The processes that are left, and those who ask them.
struct Watch {
    members: Vec<Member>,
    http: reqwest::Client,
}

impl Watch {
    /// Whether it says that it leads; one that does not answer does not say so.
    async fn is_ready(&self, member: &Member) -> bool {
        let asked =
            self.http.get(format!("{}/readyz", member.address)).timeout(Duration::from_millis(500)).send().await;
        asked.is_ok_and(|answer| answer.status() == reqwest::StatusCode::OK)
    }

    /// Waits until another one leads than this one, and sees that no two lead at once meanwhile.
    async fn next_leader(&self, after: Option<usize>) -> Outcome<usize> {
        let begun = Instant::now();
        loop {
            let mut ready = Vec::new();
            for (number, member) in self.members.iter().enumerate() {
                if self.is_ready(member).await {
                    ready.push(number);
                }
            }
            if let [first, second, ..] = ready[..]
                && self.is_ready(&self.members[first]).await
            {
                // The first one has led before and after the second one has.
                return Err(format!("{first} and {second} lead at once").into());
            }
            match ready[..] {
                [one] if Some(one) != after => {
                    println!("{} leads after {:.1?}", self.members[one].address, begun.elapsed());
                    return Ok(one);
                }
                _ if begun.elapsed() > PATIENCE => return Err("nobody leads".into()),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Sees that all of these know this leader.
    async fn know(&self, leader: usize, asked: &[usize]) -> Outcome {
        for number in asked {
            let answer = self.http.get(format!("{}/leader", self.members[*number].address)).send().await?;
            let told: serde_json::Value = serde_json::from_slice(&answer.bytes().await?)?;
            if told["address"] != *self.members[leader].address {
                return Err(format!("{number} takes {told} for the leader, not {leader}").into());
            }
        }
        Ok(())
    }
}

async fn watch(url: &str) -> Outcome {
    let mut members = Vec::new();
    for _ in 0..3 {
        members.push(Member::start(url).await?);
    }
    let mut watch = Watch { members, http: reqwest::Client::new() };
    let first = watch.next_leader(None).await?;
    watch.know(first, &[0, 1, 2]).await?;

    println!("it is killed");
    watch.members[first].process.kill().await?;
    let second = watch.next_leader(Some(first)).await?;
    let third = 3 - first - second;
    watch.know(second, &[second, third]).await?;

    println!("it is stopped");
    let stopped = watch.members[second].pid()?;
    freeze(stopped)?;
    watch.next_leader(Some(second)).await?;
    thaw(stopped)?;
    // From now on it is asked again, and must not take itself for the leader.
    let leader = watch.next_leader(None).await?;
    watch.know(leader, &[second, third]).await?;

    println!("it is cut off");
    let cut = watch.members[leader].link.inject(LinkFault::new(Toxic::Blackhole, Direction::Both));
    let last = watch.next_leader(Some(leader)).await?;
    cut.heal().map_err(|unproven| unproven.to_string())?;
    watch.know(last, &[last]).await?;
    println!("never two at once");
    Ok(())
}
