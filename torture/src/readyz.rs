//! `/readyz`: the worker's answer whether it leads, and those who ask for it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_recipes::Election;
use lock_testkit::HarnessError;
use lock_testkit_checker::history::recipe::Lead;
use lock_testkit_checker::history::{Recorder, What, now};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::exchange::{self, Client};
use crate::plan::Plan;

/// The name of the election.
pub(crate) const ELECTION: &str = "leader";
/// Between two questions to one worker. Each has a connection of its own: a worker that stands still answers all of them later.
const EVERY: Duration = Duration::from_millis(20);
/// For an answer: longer than a worker stands still.
const PATIENCE: Duration = Duration::from_secs(60);

/// The question.
const REQUEST: &[u8] = b"GET /readyz HTTP/1.1\r\nhost: worker\r\n\r\n";

/// A worker that can be asked: a candidate of the election.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Candidate {
    name: String,
    address: SocketAddr,
}

/// Answers with 200, the number of the term and its own name, or with 503; and tells the run where.
pub(crate) async fn serve(plan: &Plan, election: Election) -> Result<(), HarnessError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let (name, candidate) = (plan.name.clone(), Candidate { name: plan.name.clone(), address: listener.local_addr()? });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (election, name) = (election.clone(), name.clone());
            tokio::spawn(async move {
                // Whatever is asked for, this is the answer.
                let mut request = [0; REQUEST.len()];
                stream.read_exact(&mut request).await?;
                let (status, body) = match election.term() {
                    Some(term) => ("200 OK", format!("{term} {name}")),
                    None => ("503 Service Unavailable", String::new()),
                };
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).await
            });
        }
    });
    Client::<Candidate, ()>::connect(plan.resources).await?.ask(&candidate).await?;
    Ok(())
}

/// The worker that was seen last: its name, and its token.
pub(crate) type Seen = Option<(String, u64)>;

/// The clients that ask.
#[derive(Debug)]
pub(crate) struct Askers {
    pub(crate) address: SocketAddr,
    pub(crate) seen: watch::Receiver<Seen>,
}

/// Asks every worker that tells where it answers, as long as the runtime lives.
pub(crate) async fn ask_all(recorder: Recorder) -> Result<Askers, HarnessError> {
    let (seen, receiver) = watch::channel(None);
    let seen = Arc::new(seen);
    let asked = Mutex::new(Vec::<tokio::task::AbortHandle>::new());
    let address = exchange::serve(move |candidate: Candidate| {
        let (recorder, seen) = (recorder.clone(), seen.clone());
        let task = tokio::spawn(async move {
            let candidate = Arc::new(candidate);
            loop {
                tokio::spawn(timeout(PATIENCE, ask(candidate.clone(), recorder.clone(), seen.clone())));
                sleep(EVERY).await;
            }
        });
        asked.lock().unwrap_or_else(PoisonError::into_inner).push(task.abort_handle());
    })
    .await?;
    Ok(Askers { address, seen: receiver })
}

async fn ask(candidate: Arc<Candidate>, recorder: Recorder, seen: Arc<watch::Sender<Seen>>) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(candidate.address).await?;
    let after = now();
    stream.write_all(REQUEST).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let body = answer.strip_prefix("HTTP/1.1 200 OK\r\n").and_then(|rest| rest.rsplit("\r\n\r\n").next());
    let Some((term, name)) = body.and_then(|body| body.split_once(' ')) else { return Ok(()) };
    // A worker that has gone may have left its port to another one.
    let Some(term) = term.parse().ok().filter(|_| name == candidate.name) else { return Ok(()) };
    let (election, leader) = (ELECTION.into(), candidate.name.as_str().into());
    recorder.record(What::Lead(Lead { election, leader, term: Some(term), after, by: "readyz".into() }));
    seen.send_if_modified(|seen| {
        let is_later = seen.as_ref().is_none_or(|(_, known)| *known < term);
        if is_later {
            *seen = Some((candidate.name.clone(), term));
        }
        is_later
    });
    Ok(())
}
