//! The client crate's pool of connections, wrapped: upstream calls its interface experimental.

use std::fmt;
use std::time::Duration;

use lock_core::{Error, Phase};
use memcache::exp::{AsyncMetaClient, Op};

use super::address::Address;
use super::command::{Answer, Command};
use crate::error::Failure;

/// How long a connection may be idle before it is opened anew.
const IDLE: Duration = Duration::from_secs(90);

/// A client's connections to its server.
pub(crate) struct Link {
    client: AsyncMetaClient,
    address: Address,
}

impl Link {
    /// Resolves the address; connections are opened when they are needed.
    pub(crate) async fn new(address: Address, connections: usize, op_timeout: Duration) -> Result<Self, Error> {
        let builder = AsyncMetaClient::builder()
            .max_connections(Some(connections))
            .max_idle(connections)
            .max_idle_age(IDLE)
            .connect_timeout(Some(op_timeout))
            .io_timeout(Some(op_timeout));
        let client = builder.connect_async(address.to_string()).await;
        let client = client.map_err(|error| Failure::of(error).into_error(Phase::Connect, &address))?;
        Ok(Self { client, address })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Sends commands in one write, over one connection, and answers each, in order.
    pub(crate) async fn run(&self, mut commands: Vec<Command>) -> Vec<Answer> {
        let count = commands.len();
        if count < 2 {
            // The client crate makes more of a batch.
            return match commands.pop() {
                Some(command) => vec![self.run_one(command).await],
                None => Vec::new(),
            };
        }
        let operations: Vec<Op> = commands.into_iter().map(Command::operation).collect();
        match self.client.run_batch(operations).await {
            Ok(results) => {
                let mut answers = Answer::of_all(results);
                answers.resize_with(count, || Answer::Failed(Failure::protocol("too few answers")));
                answers
            }
            Err(error) => {
                let failure = Failure::of(error);
                (0..count).map(|_| Answer::Failed(failure.clone())).collect()
            }
        }
    }

    /// One command.
    pub(crate) async fn run_one(&self, command: Command) -> Answer {
        Answer::of(self.client.run(command.operation()).await)
    }

    /// The error of a request that failed.
    pub(crate) fn error(&self, failure: Failure, phase: Phase) -> Error {
        failure.into_error(phase, &self.address)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("address", &self.address).finish_non_exhaustive()
    }
}
