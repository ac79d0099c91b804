//! All servers of a quorum, and requests to all of them at once.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::Doubts;
use lock_core::{Error, LeaseOptions, Phase};
use tokio::sync::Notify;

use super::background::{self, Background};
use super::fan_out::FanOut;
use super::member::Member;
use crate::client::dial::Dial;
use crate::client::link::predecessors::Predecessors;
use crate::quorum::NAME;
use crate::quorum::ballot::majority;
use crate::quorum::error::too_few;
use crate::quorum::registry::UnansweredGrants;

/// The time for which the others are waited for when a majority is connected: a first lock that only just a majority holds
/// would not survive the next outage.
const GRACE: Duration = Duration::from_millis(100);

/// The servers of one client, each of which has a number from 0 on.
#[derive(Debug)]
pub(in crate::quorum) struct Members {
    all: Arc<[Arc<Member>]>,
    op_timeout: Duration,
    /// The longest TTL that is let through, if there is one: servers that have started more lately than that are not asked.
    longest_ttl: Option<Duration>,
    /// Whether a grant may be another client's that this one goes on with: it lasts for as long as that one has asked for.
    has_adopted: AtomicBool,
    /// The earlier connections of all of them, over which requests may still be carried out.
    predecessors: Arc<Predecessors>,
    /// The grants of which servers may still carry out requests.
    pub(in crate::quorum) unanswered: Arc<UnansweredGrants>,
    background: Background,
}

impl Members {
    /// Dials each server in the background, for ever. Dropping the last handle closes the connections.
    pub(in crate::quorum) fn start(dials: &[Arc<Dial>], op_timeout: Duration, longest_ttl: Option<Duration>) -> Self {
        let (predecessors, pending_added) = (Arc::<Predecessors>::default(), Arc::<Notify>::default());
        let start =
            |dial: &Arc<Dial>| Member::start(dial.clone(), predecessors.clone(), op_timeout, pending_added.clone());
        let all: Arc<[_]> = dials.iter().map(start).collect();
        let background = background::start(all.clone(), pending_added, predecessors.made());
        let (has_adopted, unanswered) = (AtomicBool::new(false), Arc::default());
        Self { all, op_timeout, longest_ttl, has_adopted, predecessors, unanswered, background }
    }

    /// Waits until a majority is connected, and a moment for the others.
    pub(in crate::quorum) async fn ready(&self, until: BootInstant) -> Result<(), Error> {
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
    pub(in crate::quorum) fn ask<T, F>(&self, request: impl Fn(Arc<Member>) -> F) -> FanOut<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        FanOut::all(&self.background, self.all.iter().map(|member| request(member.clone())))
    }

    /// Sends a request to every server but those of these numbers.
    pub(in crate::quorum) fn ask_except<T, F>(&self, except: &[usize], request: impl Fn(Arc<Member>) -> F) -> FanOut<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let others = self.all.iter().enumerate().filter(|(server, _)| !except.contains(server));
        FanOut::some(&self.background, others.map(|(server, member)| (server, request(member.clone()))))
    }

    /// Sends a request to every server to which there is a connection. Each answer comes with the number of its server.
    pub(in crate::quorum) fn ask_reachable<T, F>(&self, request: impl Fn(Arc<Member>) -> F) -> FanOut<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let reachable = self.all.iter().enumerate().filter(|(_, member)| member.link.is_up());
        FanOut::some(&self.background, reachable.map(|(server, member)| (server, request(member.clone()))))
    }

    /// The reasons why there is no connection to some of the servers.
    pub(in crate::quorum) fn outages(&self) -> impl Iterator<Item = Error> {
        self.all.iter().filter_map(|member| member.link.outage())
    }

    /// The server of this number.
    pub(in crate::quorum) fn at(&self, server: usize) -> &Member {
        &self.all[server]
    }

    /// The servers, for what outlives the client.
    pub(in crate::quorum) fn all(&self) -> Arc<[Arc<Member>]> {
        self.all.clone()
    }

    /// The servers, in the order of their numbers.
    pub(in crate::quorum) fn iter(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.all.iter()
    }

    /// The number of servers.
    pub(in crate::quorum) fn count(&self) -> usize {
        self.all.len()
    }

    /// The number of servers that is more than half of them.
    pub(in crate::quorum) fn majority(&self) -> usize {
        majority(self.count())
    }

    /// The error of an operation that too few servers have answered.
    pub(in crate::quorum) fn too_few(&self, phase: Phase, reasons: Vec<Error>) -> Error {
        too_few(phase, self.count(), reasons)
    }

    /// Refuses a TTL that outlasts the time for which a server that has started counts as forgetful; takes note of any other.
    pub(in crate::quorum) fn check_ttl(&self, ttl: Duration) -> Result<(), Error> {
        match self.longest_ttl {
            Some(limit) if ttl > limit => {
                let what = format!("the TTL is {ttl:?}, above longest_ttl ({limit:?}) of this quorum's configuration");
                Err(Error::invalid(Phase::Configure, what).with_backend(NAME))
            }
            _ => {
                self.predecessors.note_lease(ttl);
                Ok(())
            }
        }
    }

    /// The longest TTL that is let through, if there is one.
    pub(in crate::quorum) fn longest_ttl(&self) -> Option<Duration> {
        self.longest_ttl
    }

    /// Takes note of an adoption that is about to be asked for, before it is.
    pub(in crate::quorum) fn note_adoption(&self) {
        self.has_adopted.store(true, Ordering::Relaxed);
    }

    /// Returns the longest time for which a server may keep a grant of this client, and the former one of a grant that it has adopted.
    pub(in crate::quorum) fn longest_lease(&self) -> Duration {
        let of_any_client = self.has_adopted.load(Ordering::Relaxed).then_some(LeaseOptions::MAX_TTL);
        self.longest_ttl.or(of_any_client).unwrap_or_else(|| self.predecessors.longest_lease())
    }

    /// The occasions on which a connection was replaced.
    pub(in crate::quorum) fn doubts(&self) -> Doubts {
        self.predecessors.doubts()
    }

    /// The time that one operation may take.
    pub(in crate::quorum) fn op_timeout(&self) -> Duration {
        self.op_timeout
    }

    /// The end of an operation that begins now.
    pub(in crate::quorum) fn until(&self) -> BootInstant {
        SystemClock.now().plus(self.op_timeout)
    }
}
