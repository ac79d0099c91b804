//! Order across connections: their numbers, and those that came before.
//!
//! Commands are ordered on one connection only. An acquisition whose connection broke may still sit in the server's
//! receive buffer, and would be carried out after a release that was sent on a new connection. So a new connection's
//! first command kills its predecessor (`CLIENT KILL` by id **and** both addresses, so that the ids of a restarted server
//! cannot hit a stranger). Over a Unix socket all connections have the same addresses: there the server is asked first whether
//! it is the process that the predecessor was connected to (`INFO server`, its `run_id`). Once that is answered, whatever the
//! old connection carried has been carried out or never will be: the new connection is *clean*, requests may be repeated on
//! it, and one look settles a cancellation. Where
//! the user lacks the right to `CLIENT`, it is not clean, and cancellations are repeated until the lease is over. A predecessor
//! connection counts as dead one operation timeout and the client's longest TTL after its end: whatever reached the server
//! has been carried out by then, and what that left has expired. It is killed all the same when the next connection is
//! made, however late that is, as the network may have held up what it carried.
//!
//! A connection to another server than the one that is master now needs no such care: what a server carries out after it
//! was replaced does not count, as its data are thrown away. It is remembered for the case that it becomes master again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{DoubtSource, Doubts};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::sync::watch;

use super::LongestLease;
use crate::address::Address;

/// The most predecessors that are remembered one by one until they are confirmed dead. Older ones are merged into one entry, without their
/// identities.
const MOST: usize = 1024;

/// The state that all links of one client share.
#[derive(Debug)]
pub(crate) struct Predecessors {
    last: AtomicU64,
    made: watch::Sender<u64>,
    doubts: DoubtSource,
    known: Mutex<Known>,
    /// The time for which a request of a connection may matter after its end.
    pub(super) longest_lease: LongestLease,
}

/// Earlier connections that are not known to be dead at their servers too.
#[derive(Debug, Default)]
struct Known {
    /// The newest [`MOST`] of them, the oldest first.
    each: Vec<Predecessor>,
    /// The former connections that there was no room for.
    merged: Option<Merged>,
}

/// A connection, and by what its server knows it; `None` where the server does not tell: an old one, or a user without
/// the right.
#[derive(Debug, Clone)]
pub(super) struct Predecessor {
    generation: u64,
    server: Address,
    identity: Option<ConnectionIdentity>,
    /// The instant at which it was given up, once it was.
    ended_at: BootInstant,
    /// The instant from which nothing is left of whatever it carried.
    over_at: BootInstant,
}

/// Predecessors to any server, of which none can be killed any more.
#[derive(Debug, Clone, Copy)]
struct Merged {
    /// The highest number of any of them.
    generation: u64,
    /// The last instant at which one was given up.
    ended_at: BootInstant,
    /// The instant from which nothing is left of whatever any of them carried.
    over_at: BootInstant,
}

impl Default for Predecessors {
    fn default() -> Self {
        Self {
            last: AtomicU64::new(0),
            made: watch::Sender::new(0),
            doubts: DoubtSource::default(),
            known: Mutex::default(),
            longest_lease: LongestLease::default(),
        }
    }
}

impl Predecessors {
    /// The generation of a new connection: a number above those of all earlier ones.
    pub(super) fn next_generation(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Changes with every new connection.
    pub(crate) fn made(&self) -> watch::Receiver<u64> {
        self.made.subscribe()
    }

    pub(super) fn was_made(&self, generation: u64) {
        self.made.send_modify(|newest| *newest = generation.max(*newest));
    }

    /// The occasions on which something may have been lost: a connection was replaced, or another server took over.
    pub(crate) fn doubts(&self) -> Doubts {
        self.doubts.subscribe()
    }

    pub(in crate::client) fn changed(&self) {
        self.doubts.raise();
    }

    /// Takes note of a lease that is about to be asked for, before it is.
    pub(crate) fn note_lease(&self, ttl: Duration) {
        self.longest_lease.note(ttl);
    }

    /// Returns the longest lease that was asked for.
    pub(crate) fn longest_lease(&self) -> Duration {
        self.longest_lease.ttl()
    }

    /// The time after its end for which a connection, of requests that take so long at most, may matter: whatever it carried
    /// has been carried out by then, and what that left has expired.
    pub(in crate::client) fn afterlife(&self, op_timeout: Duration) -> Duration {
        op_timeout.saturating_add(self.longest_lease.ttl())
    }

    /// Remembers a connection that is given up.
    pub(super) fn add(&self, predecessor: Predecessor, op_timeout: Duration) {
        let now = SystemClock.now();
        let over_at = now.plus(self.afterlife(op_timeout));
        self.known().add(Predecessor { ended_at: now, over_at, ..predecessor }, now);
    }

    /// Kills the predecessors to this server over a new connection, and asks for the identity of the new one: one round trip if there was
    /// one predecessor, two if there were more, and one more over a Unix socket. A user without the right is told so once. A `question`
    /// travels with the first round trip; its answer is returned.
    ///
    /// # Errors
    /// If the new connection fails.
    pub(super) async fn kill_all(
        &self,
        server: &Address,
        connection: &mut MultiplexedConnection,
        question: Option<Cmd>,
    ) -> RedisResult<(Option<ConnectionIdentity>, Option<Value>)> {
        let mut there = self.to_kill(server);
        let last = there.pop_if(|last| last.run().is_none());
        let mut first = redis::pipe();
        first.cmd("CLIENT").arg("INFO");
        let is_asked = question.is_some();
        question.into_iter().for_each(|question| _ = first.add_command(question));
        last.iter().for_each(|predecessor| predecessor.kill(&mut first));
        let count = 1 + usize::from(is_asked) + usize::from(last.is_some());
        let mut answers = connection.send_packed_commands(&first, 0, count).await?.into_iter();
        let mut identity = answers.next().as_ref().and_then(ConnectionIdentity::read);
        let answer = if is_asked { answers.next() } else { None };
        let mut dead = Vec::new();
        if let Some(last) = last {
            if answers.next().as_ref().is_some_and(is_done) {
                dead.push(last.generation);
            } else {
                self.may_not_kill(server);
                there.clear();
            }
        }
        if identity.as_ref().is_some_and(|identity| !identity.is_told_apart()) {
            let mut ask = redis::pipe();
            ask.cmd("INFO").arg("server");
            let run = connection.send_packed_commands(&ask, 0, 1).await?.first().and_then(run_id);
            identity = identity.filter(|_| run.is_some()).map(|identity| ConnectionIdentity { run, ..identity });
        }
        if !there.is_empty() {
            let run = identity.as_ref().and_then(|identity| identity.run.as_deref());
            dead.extend(Box::pin(self.kill_rest(server, connection, there, run)).await?);
        }
        self.known().each.retain(|predecessor| !dead.contains(&predecessor.generation));
        Ok((identity, answer))
    }

    /// Kills those of these predecessors that were connected to this run of the server, or can be told apart without it. Returns the numbers of
    /// those that are dead: those to an earlier run have ended with it.
    async fn kill_rest(
        &self,
        server: &Address,
        connection: &mut MultiplexedConnection,
        there: Vec<Predecessor>,
        run: Option<&str>,
    ) -> RedisResult<Vec<u64>> {
        let (unsure, there): (Vec<_>, Vec<_>) =
            there.into_iter().partition(|predecessor| predecessor.run().is_some() && run.is_none());
        let (gone, there): (Vec<_>, Vec<_>) =
            there.into_iter().partition(|predecessor| predecessor.run().is_some_and(|its| Some(its) != run));
        let mut rest = redis::pipe();
        there.iter().for_each(|predecessor| predecessor.kill(&mut rest));
        let answers =
            if there.is_empty() { Vec::new() } else { connection.send_packed_commands(&rest, 0, there.len()).await? };
        let killed =
            there.iter().zip(&answers).filter(|(_, answer)| is_done(answer)).map(|(predecessor, _)| predecessor);
        let dead: Vec<_> = gone.iter().chain(killed).map(|predecessor| predecessor.generation).collect();
        if !unsure.is_empty() || dead.len() < gone.len() + there.len() {
            self.may_not_kill(server);
        }
        Ok(dead)
    }

    /// The predecessors to this server, the oldest first, as far as it can be told which ones they are.
    fn to_kill(&self, server: &Address) -> Vec<Predecessor> {
        let there = |predecessor: &&Predecessor| predecessor.server == *server && predecessor.identity.is_some();
        self.known().each.iter().filter(there).cloned().collect()
    }

    /// Forgets the predecessors to this server that are over: the server refuses to kill them.
    fn may_not_kill(&self, server: &Address) {
        let now = SystemClock.now();
        self.known().each.retain(|predecessor| predecessor.server != *server || predecessor.over_at > now);
    }

    /// Whether no predecessor to this server since this one can still carry something out.
    pub(super) fn none_in_flight(&self, server: &Address, first: u64) -> bool {
        self.known().is_quiet(
            SystemClock.now(),
            |predecessor| predecessor.generation >= first && predecessor.server == *server,
            |merged| merged.generation >= first,
        )
    }

    /// Whether no connection to this server that was given up since then can still carry something out.
    pub(super) fn none_in_flight_since(&self, server: &Address, at: BootInstant) -> bool {
        self.known().is_quiet(
            SystemClock.now(),
            |predecessor| predecessor.ended_at >= at && predecessor.server == *server,
            |merged| merged.ended_at >= at,
        )
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Every critical section leaves the list valid after each statement.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Adds one that was given up just now, and makes room for it.
    fn add(&mut self, predecessor: Predecessor, now: BootInstant) {
        // What is over is remembered only as long as it can still be killed.
        self.each.retain(|predecessor| predecessor.over_at > now || predecessor.identity.is_some());
        if self.each.len() >= MOST {
            let oldest = self.each.remove(0);
            if oldest.over_at > now {
                self.merge(&oldest, now);
            }
        }
        self.each.push(predecessor);
    }

    /// Merges one more predecessor: keeps the highest number and the latest instants of all of them.
    fn merge(&mut self, oldest: &Predecessor, now: BootInstant) {
        let Predecessor { generation, ended_at, over_at, .. } = *oldest;
        let so_far = self.merged.filter(|merged| merged.over_at > now);
        let so_far = so_far.unwrap_or(Merged { generation, ended_at, over_at });
        self.merged = Some(Merged {
            generation: so_far.generation.max(generation),
            ended_at: so_far.ended_at.max(ended_at),
            over_at: so_far.over_at.max(over_at),
        });
    }

    /// Whether none of those that matter can still carry something out.
    fn is_quiet(
        &self,
        now: BootInstant,
        matters: impl Fn(&Predecessor) -> bool,
        merged: impl Fn(Merged) -> bool,
    ) -> bool {
        !self.each.iter().any(|predecessor| predecessor.over_at > now && matters(predecessor))
            && !self.merged.is_some_and(|those| those.over_at > now && merged(those))
    }
}

impl Predecessor {
    /// A connection that is in use.
    pub(super) fn new(generation: u64, server: Address, identity: Option<ConnectionIdentity>) -> Self {
        Self { generation, server, identity, ended_at: BootInstant::FAR_FUTURE, over_at: BootInstant::FAR_FUTURE }
    }

    /// The run of the server to which it was connected, if it cannot be told apart without it.
    fn run(&self) -> Option<&str> {
        self.identity.as_ref()?.run.as_deref()
    }

    /// Adds the command that kills it, if the server can be told which one it is.
    fn kill(&self, pipeline: &mut redis::Pipeline) {
        if let Some(ConnectionIdentity { id, addr, laddr, .. }) = &self.identity {
            let kill = pipeline.cmd("CLIENT").arg("KILL");
            kill.arg("ID").arg(id).arg("ADDR").arg(addr).arg("LADDR").arg(laddr);
        }
    }
}

/// The identity of a connection at its server.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionIdentity {
    id: String,
    addr: String,
    laddr: String,
    /// The run of the server, where the addresses are those of every connection.
    run: Option<String>,
}

impl ConnectionIdentity {
    /// Reads the answer to `CLIENT INFO`.
    fn read(answer: &Value) -> Option<Self> {
        let info: String = redis::from_redis_value_ref(answer).ok()?;
        let field = |name: &str| {
            info.split_whitespace().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        Some(Self { id: field("id")?, addr: field("addr")?, laddr: field("laddr")?, run: None })
    }

    /// Whether its addresses are its own: over a Unix socket they are those of every connection, `<path>:0`.
    fn is_told_apart(&self) -> bool {
        self.addr != self.laddr && !self.addr.ends_with(":0")
    }
}

/// The id of the server's run, in the answer to `INFO server`.
fn run_id(answer: &Value) -> Option<String> {
    let info: String = redis::from_redis_value_ref(answer).ok()?;
    let run = info.lines().find_map(|line| line.strip_prefix("run_id:"))?.trim();
    (!run.is_empty()).then(|| run.to_owned())
}

/// Whether a connection is dead, by this answer to `CLIENT KILL`: killed now, or gone before.
fn is_done(answer: &Value) -> bool {
    matches!(answer, Value::Int(_) | Value::Okay)
}

#[cfg(test)]
mod tests;
