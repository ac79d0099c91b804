//! Grants that replicas have acknowledged.
//!
//! `WAIT` blocks its connection, so this is one of its own, for each master. On it the grant is renewed, which shows that
//! this very server has it, and then `WAIT` tells how many replicas have everything up to there. All who come while a
//! `WAIT` is under way share the next one, and each waits until its own deadline at most.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, Phase};
use redis::{RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::dial::{Commands, Opener};
use super::link::request::{Text, evaluation_of};
use super::pace::Pace;
use crate::address::Address;
use crate::config::Replicas;
use crate::error;
use crate::store::call::Call;
use crate::store::scripts::Script;

/// The number of grants that one `WAIT` confirms at most, and that wait for the next one.
const MOST: usize = 16_384;
/// The time without a grant after which the connection is closed.
const IDLE: Duration = Duration::from_secs(30);

/// The requests for acknowledgements of one client, by the master that granted something of late.
#[derive(Debug)]
pub(crate) struct ReplicaAcks {
    opener: Arc<Opener>,
    needed: Replicas,
    each: Mutex<HashMap<Address, mpsc::Sender<AckRequest>>>,
    /// The runtime on which the client was connected: its tasks go on there, whoever has needed one first.
    home: Handle,
}

/// The reply to a renewal, and the number of replicas that know it.
#[derive(Debug)]
pub(crate) struct Acknowledged {
    pub(crate) value: Value,
    pub(crate) replicas: u32,
}

#[derive(Debug)]
struct AckRequest {
    script: &'static Script,
    call: Call,
    until: BootInstant,
    answer: oneshot::Sender<Result<Acknowledged, NotAcknowledged>>,
}

/// The reason why a request has no acknowledgement.
#[derive(Debug)]
enum NotAcknowledged {
    /// Its time was over before it was sent.
    NoTime,
    Failed(RedisError),
}

/// The refusal of a request whose time is over.
const NO_TIME: &str = "there was no time left to wait for replicas";

impl ReplicaAcks {
    pub(crate) fn new(opener: Arc<Opener>, needed: Replicas) -> Self {
        Self { opener, needed, each: Mutex::default(), home: Handle::current() }
    }

    pub(crate) fn needed(&self) -> Replicas {
        self.needed
    }

    /// Renews a grant at this server, and waits for its replicas, at most until `until`.
    ///
    /// # Errors
    /// If the server cannot be asked, or does not answer in time, or if too many are waiting already.
    pub(crate) async fn ask(
        &self,
        server: &Address,
        script: &'static Script,
        call: Call,
        until: BootInstant,
    ) -> Result<Acknowledged, Error> {
        let shown = server.to_string();
        let refused = |what| {
            Error::unavailable(Phase::Acquire, what).with_backend(crate::guarantees::NAME).with_server(shown.clone())
        };
        let (answer, answered) = oneshot::channel();
        if !self.tell(server, AckRequest { script, call, until, answer }) {
            return Err(refused("too many grants wait for replicas already"));
        }
        match tokio::time::timeout(until.since(SystemClock.now()), answered).await {
            Ok(Ok(Ok(acknowledged))) => Ok(acknowledged),
            Ok(Ok(Err(NotAcknowledged::Failed(e)))) => Err(error::of_request(e, Phase::Acquire, &shown)),
            Ok(Err(_)) => Err(refused("the client was closed")),
            Ok(Ok(Err(NotAcknowledged::NoTime))) | Err(_) => Err(refused(NO_TIME)),
        }
    }

    /// Whether there is room for the request.
    fn tell(&self, server: &Address, mut request: AckRequest) -> bool {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(requests) = each.get(server) {
            match requests.try_send(request) {
                Ok(()) => return true,
                Err(mpsc::error::TrySendError::Full(_)) => return false,
                Err(mpsc::error::TrySendError::Closed(unsent)) => request = unsent,
            }
        }
        let (requests, asked) = mpsc::channel(MOST);
        self.home.spawn(answer_all(self.opener.clone(), self.needed, server.clone(), asked));
        // Its receiver is alive, and there is room: nothing ends it before the first request but the end of its runtime.
        let _ = requests.try_send(request);
        each.retain(|_, requests| !requests.is_closed());
        each.insert(server.clone(), requests);
        true
    }
}

/// The task of one master; it ends when nothing was asked for a while, or the client is gone.
async fn answer_all(opener: Arc<Opener>, needed: Replicas, server: Address, mut asked: mpsc::Receiver<AckRequest>) {
    let mut line = AckLine { opener, needed, server, kept: None, pace: Pace::default(), refusal: None };
    while let Some(first) = next(&mut asked, tokio::time::sleep(IDLE)).await {
        // Those who come while it is dialled share the first `WAIT`.
        let was_kept = line.kept.is_some();
        let connected = line.connected().await;
        let mut batch = vec![first];
        while batch.len() < MOST
            && let Ok(next) = asked.try_recv()
        {
            batch.push(next);
        }
        let Some(last) = still_wanted(&mut batch) else {
            line.kept = connected.ok();
            continue;
        };
        let mut outcome = line.acknowledge(connected, last, &batch).await;
        // A connection that was idle may have ended unnoticed. A renewal may be repeated, whatever became of it.
        if was_kept
            && outcome.as_ref().err().is_some_and(error::is_of_connection)
            && let Some(last) = still_wanted(&mut batch)
        {
            let connected = line.connected().await;
            outcome = line.acknowledge(connected, last, &batch).await;
        }
        tell_all(batch, outcome);
    }
}

/// The way to one master, whose connection is kept from one batch to the next.
struct AckLine {
    opener: Arc<Opener>,
    needed: Replicas,
    server: Address,
    kept: Option<Commands>,
    pace: Pace,
    /// The reason why the server took no connection, and until when it is not dialled again.
    refusal: Option<(RedisError, Instant)>,
}

impl AckLine {
    /// The connection that was kept, or a new one.
    async fn connected(&mut self) -> RedisResult<Commands> {
        if let Some(commands) = self.kept.take() {
            return Ok(commands);
        }
        // A server that takes no connection is not dialled for each batch: it is known for a moment why.
        if let Some((error, until)) = &self.refusal
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        let dialled = self.opener.patient_commands(&self.server, self.needed.timeout).await;
        self.refusal = dialled.as_ref().err().map(|error| (error.clone(), Instant::now() + self.pace.pause()));
        dialled
    }

    /// Returns one answer for each, and how many replicas have all of them; waits for these until `last` at most.
    async fn acknowledge(
        &mut self,
        connected: RedisResult<Commands>,
        last: BootInstant,
        batch: &[AckRequest],
    ) -> RedisResult<(Vec<Value>, u32)> {
        let mut commands = connected?;
        let patience = self.needed.timeout.min(last.since(SystemClock.now()));
        let outcome = acknowledge(&mut commands, Replicas { timeout: patience, ..self.needed }, batch).await;
        // A user that may not call `WAIT` will not over another connection either.
        if outcome.as_ref().err().is_none_or(|error| error::code(error) == Some("NOPERM")) {
            (self.kept, self.pace) = (Some(commands), Pace::default());
        }
        outcome
    }
}

/// Leaves those in the batch that somebody still waits for, and says until when at most; `None` if nobody does.
fn still_wanted(batch: &mut Vec<AckRequest>) -> Option<BootInstant> {
    // What somebody asked for who has given up would only hold up the others.
    let now = SystemClock.now();
    batch.retain(|request| !request.answer.is_closed());
    for late in batch.extract_if(.., |request| request.until <= now) {
        let _ = late.answer.send(Err(NotAcknowledged::NoTime));
    }
    batch.iter().map(|request| request.until).max()
}

/// The next request; `None` if there is none until then, or nobody is left to ask. After the time is over none can come any more, and
/// those that came before are still returned.
async fn next<T>(asked: &mut mpsc::Receiver<T>, idle: impl Future<Output = ()>) -> Option<T> {
    tokio::select! {
        biased;
        request = asked.recv() => request,
        () = idle => {
            asked.close();
            asked.recv().await
        }
    }
}

fn tell_all(batch: Vec<AckRequest>, outcome: RedisResult<(Vec<Value>, u32)>) {
    match outcome {
        Ok((values, replicas)) => {
            for (request, value) in batch.into_iter().zip(values) {
                // Nobody listens any more: then nobody needs to know.
                let acknowledged = value.extract_error().map(|value| Acknowledged { value, replicas });
                let _ = request.answer.send(acknowledged.map_err(NotAcknowledged::Failed));
            }
        }
        Err(error) => {
            let failed = || Err(NotAcknowledged::Failed(error.clone()));
            batch.into_iter().for_each(|request| drop(request.answer.send(failed())));
        }
    }
}

/// Returns one answer for each, and how many replicas have all of them.
async fn acknowledge(
    commands: &mut Commands,
    needed: Replicas,
    batch: &[AckRequest],
) -> RedisResult<(Vec<Value>, u32)> {
    let mut values = send(commands, needed, batch, Text::Never).await?;
    let forgotten = |value: &Value| value.clone().extract_error().is_err_and(|error| error::is_no_script(&error));
    if values.iter().any(forgotten) {
        values = send(commands, needed, batch, Text::Once).await?;
    }
    let waited = values.pop().unwrap_or(Value::Int(0)).extract_error()?;
    Ok((values, redis::from_redis_value(waited)?))
}

async fn send(commands: &mut Commands, needed: Replicas, batch: &[AckRequest], text: Text) -> RedisResult<Vec<Value>> {
    let mut pipeline = redis::pipe();
    let mut told = HashSet::new();
    for AckRequest { script, call, .. } in batch {
        let text = if told.insert(script.code) { text } else { Text::Never };
        pipeline.add_command(evaluation_of(script, call, text));
    }
    // 0 would be for ever.
    let patience = needed.timeout.as_millis().max(1);
    pipeline.cmd("WAIT").arg(needed.count).arg(patience.to_string());
    commands.connection.send_packed_commands(&pipeline, 0, batch.len() + 1).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::scripts::MUTEX;
    use crate::url::Login;

    /// Its silence would be taken for the end of the client.
    #[tokio::test]
    async fn a_request_for_which_no_time_is_left_is_answered() {
        let opener = Opener::new(&Login::default(), 0, None, Duration::from_secs(1)).unwrap();
        let needed = Replicas { count: 1, timeout: Duration::from_secs(1) };
        let (requests, asked) = mpsc::channel(1);
        let (answer, answered) = oneshot::channel();
        let until = SystemClock.now();
        requests.try_send(AckRequest { script: &MUTEX.renew, call: Call::of(["lock"]), until, answer }).unwrap();
        drop(requests);
        let nowhere = Address::Tcp { host: "127.0.0.1".to_owned(), port: 1 };
        answer_all(Arc::new(opener), needed, nowhere, asked).await;
        let outcome = answered.await.expect("an answer");
        assert!(matches!(outcome, Err(NotAcknowledged::NoTime)), "{outcome:?}");
    }

    #[tokio::test]
    async fn what_is_asked_for_as_the_task_goes_idle_is_served() {
        let (requests, mut asked) = mpsc::channel(2);
        // It comes after the look at the queue, and before the task ends.
        let idle = async { assert!([1, 2].into_iter().all(|request| requests.try_send(request).is_ok())) };
        assert_eq!(next(&mut asked, idle).await, Some(1));
        assert!(requests.is_closed(), "whoever comes later begins a task of its own");
        for expected in [Some(2), None] {
            assert_eq!(next(&mut asked, std::future::pending()).await, expected);
        }
    }
}
