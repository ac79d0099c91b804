//! All servers of a quorum.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, Phase};
use tokio::sync::Notify;

use super::background::Background;
use super::fan_out::FanOut;
use super::member::Member;
use super::tally::majority;
use super::too_few::too_few;
use crate::client::dial::Dial;
use crate::client::predecessors::Predecessors;

/// The time for which the others are waited for when a majority is connected: a first lock that only just a majority holds
/// would not survive the next outage.
const GRACE: Duration = Duration::from_millis(100);

/// The servers of one client, each of which has a number from 0 on, and the task for answers for which no caller waits.
#[derive(Debug)]
pub(super) struct Members {
    all: Arc<[Arc<Member>]>,
    background: Background,
    op_timeout: Duration,
}

impl Members {
    /// Dials each server in the background, for ever. Dropping the last handle closes the connections.
    pub(super) fn start(dials: &[Arc<Dial>], predecessors: &Arc<Predecessors>, op_timeout: Duration) -> Self {
        let owing = Arc::<Notify>::default();
        let start = |dial: &Arc<Dial>| Member::start(dial.clone(), predecessors.clone(), op_timeout, owing.clone());
        let all: Arc<[_]> = dials.iter().map(start).collect();
        let background = Background::start(all.clone(), owing);
        Self { all, background, op_timeout }
    }

    /// Waits until a majority is connected, and a moment for the others.
    pub(super) async fn ready(&self, until: BootInstant) -> Result<(), Error> {
        let (mut connected, mut reasons) = (0, Vec::new());
        let mut links: FuturesUnordered<_> = self.all.iter().map(|member| member.link.ready(until)).collect();
        let mut enough = BootInstant::FAR_FUTURE;
        loop {
            tokio::select! {
                outcome = links.next() => match outcome {
                    Some(Ok(())) => connected += 1,
                    Some(Err(reason)) => reasons.push(reason),
                    None => break,
                },
                () = SystemClock.sleep_until(enough) => break,
            }
            if connected == self.majority() && enough == BootInstant::FAR_FUTURE {
                enough = SystemClock.now().plus(GRACE);
            }
        }
        if connected >= self.majority() {
            return Ok(());
        }
        Err(self.too_few(Phase::Connect, reasons))
    }

    /// Sends a request to every server.
    pub(super) fn ask<T, F>(&self, request: impl Fn(Arc<Member>) -> F) -> FanOut<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        FanOut::all(&self.background, self.all.iter().map(|member| request(member.clone())))
    }

    /// Sends a request to every server but those of these numbers.
    pub(super) fn ask_except<T, F>(&self, except: &[usize], request: impl Fn(Arc<Member>) -> F) -> FanOut<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let others = self.all.iter().enumerate().filter(|(server, _)| !except.contains(server));
        FanOut::some(&self.background, others.map(|(server, member)| (server, request(member.clone()))))
    }

    /// Sends a request to every server to which there is a connection.
    pub(super) fn ask_reachable<T, F>(&self, request: impl Fn(Arc<Member>) -> F) -> FanOut<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let reachable = self.all.iter().filter(|member| member.link.is_up());
        FanOut::all(&self.background, reachable.map(|member| request(member.clone())))
    }

    /// The reasons why there is no connection to some of the servers.
    pub(super) fn outages(&self) -> impl Iterator<Item = Error> {
        self.all.iter().filter_map(|member| member.link.outage())
    }

    /// The server of this number.
    pub(super) fn at(&self, server: usize) -> &Member {
        &self.all[server]
    }

    /// The servers, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.all.iter()
    }

    /// The number of servers.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// The number of servers that is more than half of them.
    pub(super) fn majority(&self) -> usize {
        majority(self.count())
    }

    /// The error of an operation that too few servers have answered.
    pub(super) fn too_few(&self, phase: Phase, reasons: Vec<Error>) -> Error {
        too_few(phase, self.count(), reasons)
    }

    /// The time that one operation may take.
    pub(super) fn op_timeout(&self) -> Duration {
        self.op_timeout
    }

    /// The end of an operation that begins now.
    pub(super) fn until(&self) -> BootInstant {
        SystemClock.now().plus(self.op_timeout)
    }
}
