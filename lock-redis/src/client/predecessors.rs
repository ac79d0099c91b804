//! Order across connections: their numbers, and those that came before.
//!
//! Commands are ordered on one connection only. An acquisition whose connection broke may still sit in the server's
//! receive buffer, and would be carried out after a release that was sent on a new connection. So a new connection's
//! first command kills its predecessor (`CLIENT KILL` by id **and** both addresses, so that the ids of a restarted server
//! cannot hit a stranger). Over a Unix socket all connections have the same addresses: there the server is asked first whether it is the
//! process that the predecessor was connected to (`INFO server`, its `run_id`). Once that is answered, whatever the old connection carried has been carried out or never
//! will be: the new connection is *clean*, requests may be repeated on it, and one look settles a cancellation. Where
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

use crate::address::Address;

/// The number of predecessors, never confirmed to be dead, that are remembered one by one. Of the oldest beyond that it is only
/// remembered until when they matter.
const MOST: usize = 1024;

/// The state that all links of one client share.
#[derive(Debug)]
pub(crate) struct Predecessors {
    last: AtomicU64,
    made: watch::Sender<u64>,
    doubts: DoubtSource,
    known: Mutex<Known>,
    /// The longest lease that was asked for, in milliseconds.
    longest: AtomicU64,
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
            longest: AtomicU64::new(0),
        }
    }
}

impl Predecessors {
    /// The generation of a new connection: a number above those of all earlier ones.
    pub(super) fn next_generation(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Changes with every new connection.
    pub(super) fn made(&self) -> watch::Receiver<u64> {
        self.made.subscribe()
    }

    pub(super) fn was_made(&self, generation: u64) {
        self.made.send_modify(|newest| *newest = generation.max(*newest));
    }

    /// The occasions on which something may have been lost: a connection was replaced, or another server took over.
    pub(crate) fn doubts(&self) -> Doubts {
        self.doubts.subscribe()
    }

    pub(super) fn changed(&self) {
        self.doubts.raise();
    }

    /// Takes note of a lease that is about to be asked for, before it is.
    pub(crate) fn note_lease(&self, ttl: Duration) {
        let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        if self.longest.load(Ordering::Relaxed) < ttl {
            self.longest.fetch_max(ttl, Ordering::Relaxed);
        }
    }

    /// The time after its end for which a connection, of requests that take so long at most, may matter: whatever it carried
    /// has been carried out by then, and what that left has expired.
    pub(super) fn afterlife(&self, op_timeout: Duration) -> Duration {
        op_timeout.saturating_add(Duration::from_millis(self.longest.load(Ordering::Relaxed)))
    }

    /// Remembers a connection that is given up.
    pub(super) fn add(&self, predecessor: Predecessor, op_timeout: Duration) {
        let now = SystemClock.now();
        let over_at = now.plus(self.afterlife(op_timeout));
        self.known().add(Predecessor { ended_at: now, over_at, ..predecessor }, now);
    }

    /// Kills the predecessors to this server over a new one, and asks by what the server knows the new one: in one
    /// round trip if there was one predecessor, in two if there were more, and in one more over a Unix socket. A user without the right is
    /// told so once. A question
    /// that is to be asked too goes with the first, and has its answer returned.
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

    /// Forgets which predecessors to this server count as dead: it refuses to kill them.
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

    /// Remembers the most of what this one and those merged before may still do.
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
mod tests {
    use lock_testkit::testing::installed;
    use lock_testkit_servers::redis::{RedisOptions, RedisServer};

    use super::*;
    use crate::client::dial::{Commands, Opener};
    use crate::url::Login;

    #[test]
    fn an_identity_from_outside_names_one_connection_or_none() {
        let samples = [
            "id=7 addr=127.0.0.1:5000 laddr=127.0.0.1:6379 fd=8 name= age=0 idle=0 flags=N db=0\n",
            "id=7 addr=/tmp/s:0 laddr=/tmp/s:0\n",
            "addr=a id= laddr",
        ];
        lock_testkit::fuzz::texts("connections", &samples, |info| {
            let answer = Value::BulkString(info.as_bytes().to_vec());
            let Some(ConnectionIdentity { id, addr, laddr, .. }) = ConnectionIdentity::read(&answer) else { return };
            for (name, field) in [("id", id), ("addr", addr), ("laddr", laddr)] {
                assert!(!field.contains(char::is_whitespace), "{field:?}");
                assert!(info.contains(&format!("{name}={field}")), "{field:?}");
            }
        });
    }

    /// A connection, and by what its server knows it after the predecessors were killed over it.
    async fn connected(
        opener: &Opener,
        server: &Address,
        predecessors: &Predecessors,
    ) -> (Commands, Option<ConnectionIdentity>) {
        let mut commands = opener.commands(server).await.unwrap();
        let (identity, _) = predecessors.kill_all(server, &mut commands.connection, None).await.unwrap();
        (commands, identity)
    }

    fn opener() -> Opener {
        Opener::new(&Login::default(), 0, None, Duration::from_secs(2)).unwrap()
    }

    async fn on_unix_socket() -> Option<(RedisServer, Address)> {
        let server = installed(RedisServer::start_with(&RedisOptions::new().on_unix_socket()).await)?;
        let path = server.url().strip_prefix("unix://").unwrap().to_owned();
        let path = path.split('?').next().unwrap().to_owned();
        Some((server, Address::Unix(path.into())))
    }

    #[test]
    fn a_run_from_outside_stands_in_a_line_of_its_own() {
        let samples =
            ["# Server\r\nredis_version:7.0.15\r\nrun_id:0123456789abcdef0123456789abcdef01234567\r\ntcp_port:0\r\n"];
        lock_testkit::fuzz::texts("runs of a server", &samples, |info| {
            let answer = Value::BulkString(info.as_bytes().to_vec());
            let Some(run) = run_id(&answer) else { return };
            assert!(
                !run.is_empty() && info.lines().any(|line| line.starts_with("run_id:") && line.contains(&run)),
                "{run:?}"
            );
        });
    }

    #[test]
    fn connections_over_tcp_have_addresses_of_their_own_and_those_over_a_unix_socket_have_not() {
        let told_apart = |addr: &str, laddr: &str| {
            let (addr, laddr) = (addr.to_owned(), laddr.to_owned());
            ConnectionIdentity { addr, laddr, ..ConnectionIdentity::default() }.is_told_apart()
        };
        assert!(told_apart("127.0.0.1:5000", "127.0.0.1:6379") && told_apart("[::1]:5010", "[::1]:6379"));
        assert!(
            !told_apart("/run/redis.sock:0", "/run/redis.sock:0")
                && !told_apart("/run/redis.sock:0", "")
                && !told_apart("", "")
        );
    }

    /// All connections over a Unix socket have the same addresses, and a restarted server counts their ids anew.
    #[tokio::test]
    async fn a_stranger_that_has_a_predecessor_s_id_after_a_restart_is_not_killed() {
        for may_ask in [true, false] {
            the_stranger_lives(may_ask).await;
        }
    }

    /// Restarts a server, and connects to it anew when a stranger has the predecessor's id; whether the user may ask for the server's run then.
    async fn the_stranger_lives(may_ask: bool) {
        let Some((server, address)) = on_unix_socket().await else { return };
        let (opener, predecessors) = (opener(), Predecessors::default());
        predecessors.note_lease(Duration::from_secs(60));
        // More than the server's own tools open before it is known to be up.
        let mut strangers = Vec::new();
        for _ in 0..50 {
            strangers.push(opener.commands(&address).await.unwrap());
        }
        let (before, identity) = connected(&opener, &address, &predecessors).await;
        let id = identity.as_ref().unwrap().id.clone();
        let first = predecessors.next_generation();
        predecessors.add(Predecessor::new(first, address.clone(), identity), Duration::from_secs(2));
        drop((before, strangers));
        server.restart().await.unwrap();
        let mut company = Vec::new();
        let mut stranger = loop {
            let mut commands = opener.commands(&address).await.unwrap();
            let its: u64 = redis::cmd("CLIENT").arg("ID").query_async(&mut commands.connection).await.unwrap();
            assert!(its <= id.parse().unwrap(), "too many connections");
            if its.to_string() == id {
                break commands;
            }
            company.push(commands);
        };
        if !may_ask {
            let denied = ["SETUSER", "default", "-info"];
            redis::cmd("ACL").arg(&denied).exec_async(&mut stranger.connection).await.unwrap();
        }
        let _after = connected(&opener, &address, &predecessors).await;
        let alive = redis::cmd("PING").query_async::<String>(&mut stranger.connection).await;
        assert!(alive.is_ok(), "the stranger was killed: {alive:?}");
        // The server that it was connected to is gone, as far as that can be told.
        assert_eq!(predecessors.none_in_flight(&address, first), may_ask);
    }

    #[tokio::test]
    async fn a_predecessor_on_a_unix_socket_is_killed_while_its_server_lives() {
        let Some((_server, address)) = on_unix_socket().await else { return };
        let (opener, predecessors) = (opener(), Predecessors::default());
        predecessors.note_lease(Duration::from_secs(60));
        let (mut before, identity) = connected(&opener, &address, &predecessors).await;
        let first = predecessors.next_generation();
        predecessors.add(Predecessor::new(first, address.clone(), identity), Duration::from_secs(2));
        assert!(!predecessors.none_in_flight(&address, first));
        let _after = connected(&opener, &address, &predecessors).await;
        assert!(predecessors.none_in_flight(&address, first));
        redis::cmd("PING").query_async::<String>(&mut before.connection).await.unwrap_err();
    }

    #[test]
    fn a_predecessor_disturbs_what_was_sent_before_its_end_to_its_own_server() {
        let predecessors = Predecessors::default();
        let address = |host: &str| Address::Tcp { host: host.to_owned(), port: 1 };
        let (before, first) = (SystemClock.now(), predecessors.next_generation());
        let predecessor = Predecessor::new(first, address("a"), None);
        assert!(
            predecessors.none_in_flight(&address("a"), first)
                && predecessors.none_in_flight_since(&address("a"), before)
        );
        predecessors.note_lease(Duration::from_secs(10));
        predecessors.add(predecessor, Duration::from_secs(2));
        assert!(
            !predecessors.none_in_flight(&address("a"), first)
                && !predecessors.none_in_flight_since(&address("a"), before)
        );
        assert!(
            predecessors.none_in_flight(&address("b"), first)
                && predecessors.none_in_flight_since(&address("b"), before)
        );
        let after = SystemClock.now().plus(std::time::Duration::from_nanos(1));
        assert!(
            predecessors.none_in_flight(&address("a"), predecessors.next_generation())
                && predecessors.none_in_flight_since(&address("a"), after)
        );
    }

    #[test]
    fn a_predecessor_is_forgotten_an_operation_timeout_and_the_longest_lease_after_its_end() {
        let (predecessors, server) = (Predecessors::default(), Address::Tcp { host: "a".to_owned(), port: 1 });
        predecessors.note_lease(Duration::from_millis(30));
        predecessors.note_lease(Duration::from_millis(10));
        let first = predecessors.next_generation();
        predecessors.add(Predecessor::new(first, server.clone(), None), Duration::from_millis(20));
        let began = SystemClock.now();
        assert!(!predecessors.none_in_flight(&server, first));
        while !predecessors.none_in_flight(&server, first) {
            assert!(SystemClock.now().since(began) < Duration::from_secs(10));
            std::thread::yield_now();
        }
        assert!(SystemClock.now().since(began) >= Duration::from_millis(45));
    }

    #[test]
    fn a_predecessor_that_counts_as_dead_is_killed_all_the_same() {
        let (predecessors, server) = (Predecessors::default(), Address::Tcp { host: "a".to_owned(), port: 1 });
        let [known, unknown] = [Some(ConnectionIdentity::default()), None].map(|identity| {
            let predecessor = Predecessor::new(predecessors.next_generation(), server.clone(), identity);
            let generation = predecessor.generation;
            predecessors.add(predecessor, Duration::ZERO);
            generation
        });
        std::thread::sleep(Duration::from_millis(1));
        assert!(predecessors.none_in_flight(&server, known) && predecessors.none_in_flight(&server, unknown));
        let killed: Vec<_> = predecessors.to_kill(&server).iter().map(|predecessor| predecessor.generation).collect();
        assert_eq!(killed, [known]);
        // Where there is no right to kill, there is nothing to remember it for.
        predecessors.may_not_kill(&server);
        assert!(predecessors.to_kill(&server).is_empty());
        predecessors.note_lease(Duration::from_secs(10));
        predecessors.add(
            Predecessor::new(predecessors.next_generation(), server.clone(), Some(ConnectionIdentity::default())),
            Duration::ZERO,
        );
        predecessors.may_not_kill(&server);
        assert!(!predecessors.none_in_flight(&server, known) && predecessors.to_kill(&server).len() == 1);
    }

    fn at(s: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_secs(s))
    }

    /// Adds one that ended at one second, and is over at another.
    fn add(known: &mut Known, generation: u64, killable: bool, (ended, over): (u64, u64)) {
        let identity = killable.then(ConnectionIdentity::default);
        let predecessor = Predecessor::new(generation, Address::Tcp { host: "a".to_owned(), port: 1 }, identity);
        known.add(Predecessor { ended_at: at(ended), over_at: at(over), ..predecessor }, at(ended));
    }

    /// Whether none of these or later ones, nor any that ended then or later, can carry something out at this second.
    fn is_quiet(known: &Known, generation: u64, ended: u64, now: u64) -> bool {
        let numbered = known.is_quiet(at(now), |one| one.generation >= generation, |all| all.generation >= generation);
        let since = at(ended);
        assert_eq!(numbered, known.is_quiet(at(now), |one| one.ended_at >= since, |all| all.ended_at >= since));
        numbered
    }

    #[test]
    fn what_was_forgotten_early_disturbs_until_it_is_over() {
        let mut known = Known::default();
        add(&mut known, 1, false, (1, 60));
        for generation in 2..=1 + MOST as u64 {
            add(&mut known, generation, false, (2, 100));
        }
        known.each.clear();
        assert!(!is_quiet(&known, 1, 1, 59) && is_quiet(&known, 2, 2, 59) && is_quiet(&known, 1, 1, 60));
    }

    #[test]
    fn what_was_over_when_it_was_forgotten_disturbs_nobody() {
        let mut known = Known::default();
        add(&mut known, 1, false, (1, 60_000));
        for generation in 2..=2 + MOST as u64 {
            add(&mut known, generation, true, (generation, generation + 1));
        }
        assert_eq!(known.each.len(), MOST);
        known.each.clear();
        assert!(!is_quiet(&known, 1, 1, 59_999) && is_quiet(&known, 2, 2, 59_999));
    }

    /// A connection that ends last may be older than others.
    #[test]
    fn what_is_over_does_not_outlive_itself_in_what_is_forgotten_later() {
        let mut known = Known::default();
        add(&mut known, 9000, false, (1, 60));
        for _ in 0..MOST {
            add(&mut known, 9000, false, (1, 60));
        }
        for _ in 0..=MOST {
            add(&mut known, 1, false, (100, 160));
        }
        known.each.clear();
        assert!(known.is_quiet(at(101), |_| true, |merged| merged.generation >= 2));
        assert!(!known.is_quiet(at(101), |_| true, |merged| merged.generation >= 1));
    }
}
