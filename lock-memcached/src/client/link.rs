//! A client's connections to its server.
//!
//! There are never more in use than [`MemcachedConfig::connections`](crate::MemcachedConfig::connections), for whatever purpose: who
//! finds none free waits for one. Only a call that nobody drives any more keeps its own beside them, until it is dropped. A request has one deadline for all of its steps: finding a connection, opening it, sending
//! and being answered.

use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, log, wait};
use lock_core::{Error, Phase};
use tokio::runtime::{Handle, Id};

use super::cas::CasNumber;
use super::detach_on_drop::{DetachOnDrop, HomeRuntime};
use super::pipeline::Connection;
use super::protocol::{Command, CommandAnswer};
use super::resolved::{ResolvedPlaces, Resolver};
use super::rights::{Right, Rights};
use crate::address::Address;
use crate::error::Failure;
use crate::store::keys::Key;
use crate::store::values::{self, Nonce};

/// The longest time for which an idle connection is used again.
const IDLE: Duration = Duration::from_secs(90);

/// A client's connections to its server.
pub(crate) struct Link {
    address: Address,
    resolver: Resolver,
    op_timeout: Duration,
    most: usize,
    rights: Rights,
    home: HomeRuntime,
    pool: Mutex<ConnectionPool>,
}

#[derive(Default)]
struct ConnectionPool {
    /// Not in use.
    idle: Vec<IdleConnection>,
    places: ResolvedPlaces,
    /// Grows when the server is reached at another place.
    moves: u64,
    /// Connections that there have been.
    opened: u64,
    /// Those that are in use, or are being opened. A right may have been handed to somebody who has none yet.
    in_use: usize,
}

struct IdleConnection {
    pipe: Connection,
    since: BootInstant,
    /// Only there it can be used: another one's reactor may stand still.
    runtime: Id,
}

/// A connection in use. It goes back to the others if nothing is under way on it when this is dropped.
pub(crate) struct InUse<'a> {
    link: &'a Link,
    pipe: Option<Connection>,
    moves: u64,
    until: BootInstant,
    /// The runtime in which the connection was opened.
    runtime: Option<Id>,
    right: Right<'a>,
}

/// Commands on their way, and their answers.
pub(crate) type PendingAnswers<'a> = Pin<Box<dyn Future<Output = Vec<CommandAnswer>> + Send + 'a>>;

impl Link {
    /// No traffic yet: connections are opened when they are needed.
    pub(crate) fn new(address: Address, connections: usize, op_timeout: Duration) -> Self {
        // Several requests may be carried through one after the other.
        let home = HomeRuntime::current(op_timeout * 4);
        Self {
            address,
            resolver: Resolver::default(),
            op_timeout,
            most: connections,
            rights: Rights::new(connections),
            home,
            pool: Mutex::default(),
        }
    }

    /// Asks this one for the places of its name.
    #[cfg(test)]
    pub(crate) fn with_resolver(self, resolver: Resolver) -> Self {
        Self { resolver, ..self }
    }

    /// Resolves the address; that has to be done by `until`.
    pub(crate) async fn resolve(&self, until: BootInstant) -> Result<(), Error> {
        let found = self.resolver.resolve(&self.address, until).await;
        let found = found.map_err(|error| self.error(Failure::unresolved(error), Phase::Connect))?;
        self.pool().places.resolved(SystemClock.now(), found);
        Ok(())
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Sends commands in one write, over one connection, and answers each, in order.
    pub(crate) async fn run(&self, commands: Vec<Command>) -> Vec<CommandAnswer> {
        self.run_by(commands, self.deadline()).await
    }

    /// [`run`](Link::run), by this instant. The future is boxed here: it would be part of every caller's, and twice of many.
    pub(crate) fn run_by(&self, commands: Vec<Command>, until: BootInstant) -> PendingAnswers<'_> {
        Box::pin(async move {
            if commands.is_empty() {
                return Vec::new();
            }
            match self.connection(until).await {
                Ok(mut connection) => connection.run(commands).await,
                Err(failure) => commands.iter().map(|_| CommandAnswer::Failed(failure.clone())).collect(),
            }
        })
    }

    /// Sends one command.
    pub(crate) async fn run_one(&self, command: Command) -> CommandAnswer {
        CommandAnswer::expected(self.run(vec![command]).await.pop())
    }

    /// A connection for steps that belong together and end by this instant.
    pub(crate) async fn for_steps(&self, until: BootInstant) -> Result<InUse<'_>, Failure> {
        self.connection(until).await
    }

    /// The error of a request that failed.
    pub(crate) fn error(&self, failure: Failure, phase: Phase) -> Error {
        failure.into_error(phase, &self.address)
    }

    /// Bounds a request by the attempt's operation timeout.
    pub(crate) async fn within<T>(
        &self,
        attempt: &Attempt,
        phase: Phase,
        request: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        // Pinned here: handed on by value, it would be part of each layer's future once more.
        let bounded = wait::within(&SystemClock, attempt, phase, pin!(request)).await;
        bounded.map_err(|error| error.with_server(self.address.to_string()))
    }

    /// Bounds an operator's request by the operation timeout.
    pub(crate) async fn in_time<T>(&self, request: impl Future<Output = Result<T, Error>> + Send) -> Result<T, Error> {
        let late = SystemClock.sleep_until(self.deadline());
        tokio::select! {
            biased;
            answer = pin!(request) => answer,
            () = late => {
                let error = Error::indeterminate(Phase::Inspect, "no answer within the operation timeout");
                Err(error.with_backend(crate::guarantees::NAME).with_server(self.address.to_string()))
            }
        }
    }

    /// The end of a claim that is sent at this instant: from then on it cannot be carried out any more, and what it took is
    /// gone. At the worst it is carried out as late as it is dropped from the server's buffers.
    pub(crate) fn gone_by(&self, sent_at: BootInstant, ttl: Duration) -> BootInstant {
        sent_at.plus(self.op_timeout).plus(Duration::from_secs(values::seconds(ttl).into()))
    }

    /// The CAS number that each of these items has now, asked for by this instant; none for one that is not this grant's (any more).
    pub(crate) async fn find_own(
        &self,
        items: impl Iterator<Item = (Nonce, &Key)> + Clone,
        until: BootInstant,
    ) -> Vec<Result<Option<CasNumber>, Failure>> {
        let reads = items.clone().map(|(_, key)| Command::Read { key: key.clone() });
        let answers = self.run_by(reads.collect(), until).await;
        let own = items.zip(answers).map(|((nonce, _), answer)| {
            let found = answer.item()?.filter(|item| Nonce::read(&item.value) == Some(nonce));
            Ok(found.map(|item| item.seen))
        });
        own.collect()
    }

    fn pool(&self) -> MutexGuard<'_, ConnectionPool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest time that one request takes.
    pub(crate) fn op_timeout(&self) -> Duration {
        self.op_timeout
    }

    /// The instant by which a request that begins now ends, with all of its steps.
    pub(crate) fn deadline(&self) -> BootInstant {
        SystemClock.now().plus(self.op_timeout)
    }

    /// A connection that is opened for this, whatever others there are, for steps that end by this instant.
    pub(crate) async fn newly_opened(&self, until: BootInstant) -> Result<InUse<'_>, Failure> {
        let mut used = InUse::of(self, self.right(until).await?, until);
        let (pipe, moves) = self.open(until).await?;
        (used.pipe, used.moves) = (Some(pipe), moves);
        Ok(used)
    }

    /// The right to have one connection more in use.
    async fn right(&self, until: BootInstant) -> Result<Right<'_>, Failure> {
        self.rights.one(until).await.ok_or_else(Failure::crowded)
    }

    async fn connection(&self, until: BootInstant) -> Result<InUse<'_>, Failure> {
        let mut used = InUse::of(self, self.right(until).await?, until);
        let (idle, moves) = self.pool().take(SystemClock.now(), used.runtime);
        let (pipe, moves) = match idle {
            Some(pipe) => (pipe, moves),
            // Seldom.
            None => Box::pin(self.open(until)).await?,
        };
        (used.pipe, used.moves) = (Some(pipe), moves);
        Ok(used)
    }

    /// A request that is carried through although nobody waits for it any more, once it has begun.
    pub(crate) fn detach_on_drop<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
    ) -> DetachOnDrop<T> {
        self.home.detach_on_drop(request)
    }

    fn runtime(&self) -> Option<Id> {
        Handle::try_current().ok().map(|runtime| runtime.id())
    }

    async fn open(&self, until: BootInstant) -> Result<(Connection, u64), Failure> {
        let known = self.pool().places.to_try(SystemClock.now());
        let places = match known {
            Some(places) => places,
            None => {
                let found = self.resolver.resolve(&self.address, until).await;
                let mut pool = self.pool();
                let now = SystemClock.now();
                pool.places.resolved(now, found.as_ref().cloned().unwrap_or_default());
                match (pool.places.to_try(now), found) {
                    (Some(places), _) => places,
                    (None, Err(error)) => return Err(Failure::unresolved(error)),
                    (None, Ok(_)) => return Err(Failure::unresolved(io::ErrorKind::NotFound.into())),
                }
            }
        };
        let number = self.pool().opens(self.most.saturating_sub(self.rights.given()));
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        let many = places.len();
        for (tried, place) in places.into_iter().enumerate() {
            match Connection::open(place, number, share(SystemClock.now(), until, many - tried)).await {
                Ok(pipe) => return Ok((pipe, self.pool().reached(place, &self.address))),
                Err(error) => last = error,
            }
        }
        self.pool().places.in_doubt();
        Err(Failure::of_io(last, false))
    }
}

impl ConnectionPool {
    /// The oldest one that is not in use and alive, over which the most numbers are known; and how often the server has moved.
    fn take(&mut self, now: BootInstant, runtime: Option<Id>) -> (Option<Connection>, u64) {
        self.idle.retain(|idle| now.since(idle.since) < IDLE);
        let oldest = |idle: &Vec<IdleConnection>| {
            let here = idle.iter().enumerate().filter(|(_, idle)| Some(idle.runtime) == runtime);
            here.min_by_key(|(_, idle)| idle.pipe.number()).map(|(position, _)| position)
        };
        while let Some(position) = oldest(&self.idle) {
            let IdleConnection { mut pipe, .. } = self.idle.swap_remove(position);
            if pipe.is_alive() {
                return (Some(pipe), self.moves);
            }
        }
        (None, self.moves)
    }

    /// The number of a connection that is about to be opened. At most so many stay beside those in use.
    fn opens(&mut self, beside: usize) -> u64 {
        self.idle.drain(..self.idle.len().saturating_sub(beside));
        self.opened += 1;
        self.opened
    }

    fn reached(&mut self, place: std::net::SocketAddr, address: &Address) -> u64 {
        if self.places.reached(place) {
            log(|| tracing::warn!(server = %address, %place, "the server's name leads to another place"));
            self.moves += 1;
            self.idle.clear();
        }
        self.moves
    }
}

impl<'a> InUse<'a> {
    /// The use of a connection that is about to be found.
    fn of(link: &'a Link, right: Right<'a>, until: BootInstant) -> Self {
        link.pool().in_use += 1;
        Self { link, pipe: None, moves: 0, until, runtime: link.runtime(), right }
    }

    /// Sends commands in one write, and answers each, in order.
    pub(crate) async fn run(&mut self, commands: Vec<Command>) -> Vec<CommandAnswer> {
        let mut answers: Vec<_> = commands.iter().map(|_| None).collect();
        if let Some(pipe) = &mut self.pipe {
            let until = self.until;
            pipe.exchange(commands, |_| until, until, |at, answer| answers[at] = Some(answer)).await;
        }
        // Each is told.
        answers.into_iter().map(CommandAnswer::expected).collect()
    }

    /// [`run`](InUse::run), for callers each of which is told its answers as soon as they are read. `sent_by` says of each command by when
    /// it has to be sent; everything is over by `until`.
    pub(super) async fn run_together(
        &mut self,
        commands: Vec<Command>,
        sent_by: impl Fn(usize) -> BootInstant,
        until: BootInstant,
        tell: impl FnMut(usize, CommandAnswer),
    ) {
        self.right.lasts(until);
        // Without a connection nobody is told, which each of them hears.
        if let Some(pipe) = &mut self.pipe {
            pipe.exchange(commands, sent_by, until, tell).await;
        }
    }

    /// Sends one command.
    pub(crate) async fn run_one(&mut self, command: Command) -> CommandAnswer {
        CommandAnswer::expected(self.run(vec![command]).await.pop())
    }

    /// Asks what the server counts, or with `" settings"` how it is set up.
    pub(crate) async fn stats(&mut self, of: &str) -> Result<std::collections::HashMap<String, String>, Failure> {
        match &mut self.pipe {
            Some(pipe) => pipe.stats(of, self.until).await,
            None => Err(Failure::senseless()),
        }
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let pipe = self.pipe.take().filter(Connection::is_in_order);
        let mut pool = self.link.pool();
        pool.in_use -= 1;
        let (Some(pipe), Some(runtime)) = (pipe, self.runtime) else { return };
        // If it was overdue, others have its right by now: a connection whose time has passed is none of those beside this one. Its own
        // right, if it still has it, goes back after this.
        let others = pool.in_use.min(self.right.besides());
        if pool.moves == self.moves && pool.idle.len() + others < self.link.most {
            pool.idle.push(IdleConnection { pipe, since: SystemClock.now(), runtime });
        }
    }
}

/// The instant by which one of so many places has to be reached, so that there is time for each of the others.
fn share(now: BootInstant, until: BootInstant, places: usize) -> BootInstant {
    let places = u32::try_from(places).unwrap_or(u32::MAX).max(1);
    now.plus(until.since(now) / places)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_does_not_answer_leaves_time_for_the_others() {
        let at = |ms| BootInstant::from_origin(Duration::from_millis(ms));
        assert_eq!(share(at(1000), at(3000), 2), at(2000));
        assert_eq!(share(at(2000), at(3000), 1), at(3000));
        assert_eq!(share(at(1100), at(3000), 2), at(2050), "what one did not need is for the others");
        assert_eq!(share(at(4000), at(3000), 2), at(4000), "the time is over");
    }

    /// A socket at which nobody ever answers.
    async fn socket() -> (tokio::net::TcpListener, std::net::SocketAddr) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap();
        (listener, place)
    }

    #[tokio::test]
    async fn a_connection_whose_time_has_passed_is_not_kept_beside_as_many_as_there_may_be() {
        let (_server, place) = socket().await;
        let link = Link::new(crate::url::parse(&format!("memcached://{place}")).unwrap(), 1, Duration::from_secs(60));
        let late = link.for_steps(SystemClock.now().plus(Duration::from_millis(10))).await.unwrap();
        let next = link.for_steps(link.deadline()).await.expect("its right is another's by then");
        drop(next);
        drop(late);
        assert_eq!(link.pool().idle.len(), 1);
    }

    #[tokio::test]
    async fn what_has_no_time_left_is_not_sent_and_told_so() {
        let (server, place) = socket().await;
        let link = Link::new(crate::url::parse(&format!("memcached://{place}")).unwrap(), 1, Duration::from_secs(60));
        drop(link.for_steps(link.deadline()).await.unwrap());
        let mut late = link.for_steps(SystemClock.now().plus(Duration::from_millis(10))).await.unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let answer = late.run_one(Command::Forget { key: crate::store::keys::writer("a") }).await;
        assert!(answer.failure().is_some_and(|failure| !failure.is_unknown), "{answer:?}");
        drop(late);
        assert_eq!(link.pool().idle.len(), 1, "the connection is in order");
        drop(link);
        let (mut accepted, mut received) = (server.accept().await.unwrap().0, Vec::new());
        tokio::io::AsyncReadExt::read_to_end(&mut accepted, &mut received).await.unwrap();
        assert!(received.is_empty(), "{received:?}");
    }

    #[tokio::test]
    async fn a_connection_is_kept_for_whoever_was_handed_the_right_to_it() {
        let (_server, place) = socket().await;
        let link = Link::new(crate::url::parse(&format!("memcached://{place}")).unwrap(), 2, Duration::from_secs(60));
        let mut used = Vec::new();
        for _ in 0..2 {
            used.push(link.for_steps(link.deadline()).await.unwrap());
        }
        let mut waiting = [(); 2].map(|()| Box::pin(link.for_steps(link.deadline())));
        for waits in &mut waiting {
            assert!(futures_util::FutureExt::now_or_never(waits.as_mut()).is_none());
        }
        drop(used);
        assert_eq!(link.pool().idle.len(), 2, "one was closed before the right that was handed over was used");
        for waits in waiting {
            waits.await.unwrap();
        }
        assert_eq!(link.pool().opened, 2);
    }

    #[tokio::test]
    async fn whatever_is_open_to_a_former_place_is_not_used_again() {
        let ((_first, before), (_second, after)) = (socket().await, socket().await);
        let address = crate::url::parse(&format!("memcached://{before}")).unwrap();
        let link = Link::new(address, 4, Duration::from_secs(5));
        let number = |used: &InUse<'_>| used.pipe.as_ref().map(Connection::number);
        let (idle, in_use) =
            (link.for_steps(link.deadline()).await.unwrap(), link.for_steps(link.deadline()).await.unwrap());
        let first = number(&idle);
        drop(idle);
        let idle = link.for_steps(link.deadline()).await.unwrap();
        assert_eq!(number(&idle), first, "it is used again while the server is where it was");
        drop(idle);
        // The name is resolved to another place, and the server is reached there.
        link.pool().places.resolved(SystemClock.now(), vec![after]);
        let moved = link.newly_opened(link.deadline()).await.unwrap();
        assert_eq!(link.pool().moves, 1);
        assert_eq!(link.pool().idle.len(), 0);
        drop(in_use);
        assert!(link.pool().idle.is_empty(), "it leads to the former place");
        drop(moved);
        assert_eq!(link.pool().idle.len(), 1);
    }
}
