//! Grants that replicas have acknowledged.
//!
//! `WAIT` blocks its connection, so this is one of its own, for each master. On it the grant is renewed, which shows that
//! this very server has it, and then `WAIT` tells how many replicas have everything up to there. Those who come while a
//! `WAIT` is under way share the next one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::{Error, Phase};
use redis::{RedisResult, Value};
use tokio::sync::{mpsc, oneshot};

use super::address::Address;
use super::dial::{Commands, Opener, nowhere};
use super::request::{self, Call};
use crate::config::Replicas;
use crate::error;
use crate::script::Script;

/// How many grants one `WAIT` confirms at most.
const MOST: usize = 128;
/// After how long without a grant the connection is closed.
const IDLE: Duration = Duration::from_secs(30);

/// One client's witnesses, one for each master that granted something of late.
#[derive(Debug)]
pub(crate) struct Witnesses {
    opener: Arc<Opener>,
    needed: Replicas,
    each: Mutex<HashMap<Address, mpsc::UnboundedSender<Question>>>,
}

/// What became of a renewal, and how many replicas know it.
#[derive(Debug)]
pub(crate) struct Witnessed {
    pub(crate) value: Value,
    pub(crate) replicas: u32,
}

#[derive(Debug)]
struct Question {
    script: &'static Script,
    call: Call,
    answer: oneshot::Sender<RedisResult<Witnessed>>,
}

impl Witnesses {
    pub(crate) fn new(opener: Arc<Opener>, needed: Replicas) -> Self {
        Self { opener, needed, each: Mutex::default() }
    }

    pub(crate) fn needed(&self) -> Replicas {
        self.needed
    }

    /// Renews a grant at this server, and waits for its replicas.
    ///
    /// # Errors
    /// If the server cannot be asked, or does not answer.
    pub(crate) async fn ask(&self, server: &Address, script: &'static Script, call: Call) -> Result<Witnessed, Error> {
        let (answer, answered) = oneshot::channel();
        self.tell(server, Question { script, call, answer });
        match answered.await {
            Ok(outcome) => outcome.map_err(|e| error::of_request(e, Phase::Acquire, &server.to_string())),
            Err(_) => Err(nowhere("the client was closed", &server.to_string())),
        }
    }

    fn tell(&self, server: &Address, mut question: Question) {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(questions) = each.get(server) {
            match questions.send(question) {
                Ok(()) => return,
                Err(mpsc::error::SendError(unsent)) => question = unsent,
            }
        }
        let (questions, asked) = mpsc::unbounded_channel();
        tokio::spawn(answer_all(self.opener.clone(), self.needed, server.clone(), asked));
        // Its receiver is alive: nothing ends it before the first question.
        let _ = questions.send(question);
        each.retain(|_, questions| !questions.is_closed());
        each.insert(server.clone(), questions);
    }
}

/// The task of one master; it ends when nothing was asked for a while, or the client is gone.
async fn answer_all(
    opener: Arc<Opener>,
    needed: Replicas,
    server: Address,
    mut asked: mpsc::UnboundedReceiver<Question>,
) {
    let mut present = None;
    while let Ok(Some(first)) = tokio::time::timeout(IDLE, asked.recv()).await {
        let mut batch = vec![first];
        while batch.len() < MOST
            && let Ok(next) = asked.try_recv()
        {
            batch.push(next);
        }
        // What somebody asked for who has given up would only hold up the others.
        batch.retain(|question| !question.answer.is_closed());
        if batch.is_empty() {
            continue;
        }
        let outcome = witness(&opener, needed, &server, &mut present, &batch).await;
        if outcome.is_err() {
            present = None;
        }
        tell_all(batch, outcome);
    }
}

fn tell_all(batch: Vec<Question>, outcome: RedisResult<(Vec<Value>, u32)>) {
    match outcome {
        Ok((values, replicas)) => {
            for (question, value) in batch.into_iter().zip(values) {
                // Nobody listens any more: then nobody needs to know.
                let _ = question.answer.send(value.extract_error().map(|value| Witnessed { value, replicas }));
            }
        }
        Err(error) => batch.into_iter().for_each(|question| drop(question.answer.send(Err(error.clone())))),
    }
}

/// One answer for each, and how many replicas have all of them.
async fn witness(
    opener: &Opener,
    needed: Replicas,
    server: &Address,
    present: &mut Option<Commands>,
    batch: &[Question],
) -> RedisResult<(Vec<Value>, u32)> {
    let commands = match present {
        Some(commands) => commands,
        None => present.insert(opener.patient_commands(server, needed.timeout).await?),
    };
    let mut values = send(commands, needed, batch, false).await?;
    let forgotten = |value: &Value| value.clone().extract_error().is_err_and(|error| error::is_no_script(&error));
    if values.iter().any(forgotten) {
        values = send(commands, needed, batch, true).await?;
    }
    let waited = values.pop().unwrap_or(Value::Int(0)).extract_error()?;
    Ok((values, redis::from_redis_value(waited)?))
}

async fn send(commands: &mut Commands, needed: Replicas, batch: &[Question], in_full: bool) -> RedisResult<Vec<Value>> {
    let mut pipeline = redis::pipe();
    for Question { script, call, .. } in batch {
        let (command, script) = if in_full { ("EVAL", script.code) } else { ("EVALSHA", &*script.digest) };
        pipeline.add_command(request::evaluation_of(command, script, call));
    }
    pipeline.cmd("WAIT").arg(needed.count).arg(needed.timeout.as_millis().to_string());
    commands.connection.send_packed_commands(&pipeline, 0, batch.len() + 1).await
}
