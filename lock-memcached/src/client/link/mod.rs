//! A client's connections to its server.
//!
//! There are never more in use than [`MemcachedConfig::connections`](crate::MemcachedConfig::connections), for whatever purpose: who
//! finds none free waits for one. Only a call that nobody drives any more keeps its own beside them, until it is dropped. A request
//! has one deadline for all of its steps: finding a connection, opening it, sending and being answered.

mod batches;
mod connection;
mod home_runtime;
mod lookup;
mod opening;
mod own_items;
mod resolved;

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, wait};
use lock_core::{Error, Phase};
use tokio::runtime::{Handle, Id};

use self::batches::RuntimeBatches;
use self::connection::Connection;
use self::home_runtime::{HomeRuntime, Work};
use self::lookup::NameLookup;
use self::resolved::ResolvedPlaces;
use crate::address::Address;
use crate::client::protocol::{Command, CommandAnswer};
use crate::client::rights::{Precedence, Right, Rights};
use crate::error::Failure;
use crate::network::Network;
use crate::store::keys::item_ttl;

/// The longest time for which an idle connection is used again. It is closed when the next request looks for one.
const IDLE: Duration = Duration::from_secs(90);

/// The most callers that send by themselves: to let so few go together costs more than it saves.
const MOST_ALONE: usize = 2;

/// A client's connections to its server.
pub(crate) struct Link {
    address: Address,
    network: Arc<dyn Network>,
    op_timeout: Duration,
    most: usize,
    rights: Rights,
    home: HomeRuntime,
    lookup: NameLookup,
    pool: Mutex<ConnectionPool>,
    /// Requests that go together: those of each runtime on which calls are under way.
    batches: Mutex<Vec<(Id, Arc<RuntimeBatches>)>>,
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

/// A caller whose request may go with those of others, for as long as it takes.
struct Caller {
    batches: Arc<RuntimeBatches>,
    runtime: Handle,
    /// Whether hardly anybody else on its runtime asks.
    is_alone: bool,
}

/// The answers to the looks at a key that go with commands.
#[derive(Debug)]
pub(crate) enum Looks {
    None,
    /// To the one in front of all commands of a write, and to the one behind all.
    Shared(Arc<[LookAnswer; 2]>),
}

/// The answer to one of two looks, and the instant at which it was read.
#[derive(Debug)]
pub(crate) struct LookAnswer {
    pub(crate) answer: CommandAnswer,
    pub(crate) read_at: BootInstant,
}

/// Commands on their way, and their answers with the instants at which they were read.
type PendingLooks<'a> = Pin<Box<dyn Future<Output = Vec<LookAnswer>> + Send + 'a>>;

/// Commands on their way, and their answers.
pub(crate) type PendingAnswers<'a> = Pin<Box<dyn Future<Output = Vec<CommandAnswer>> + Send + 'a>>;

impl Link {
    /// No traffic yet: connections are opened when they are needed.
    pub(crate) fn new(address: Address, connections: usize, op_timeout: Duration, network: Arc<dyn Network>) -> Self {
        // Several requests may be carried through one after the other.
        let home = HomeRuntime::current(op_timeout * 4);
        Self {
            address,
            network,
            op_timeout,
            most: connections,
            rights: Rights::new(connections),
            home,
            lookup: NameLookup::default(),
            pool: Mutex::default(),
            batches: Mutex::default(),
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Sends commands in one write, over one connection, and answers each, in order.
    pub(crate) fn run(&self, commands: Vec<Command>) -> PendingAnswers<'_> {
        self.run_by(commands, self.deadline())
    }

    /// [`run`](Link::run), by this instant. The future is boxed here: it would be part of every caller's, and twice of many.
    pub(crate) fn run_by(&self, commands: Vec<Command>, until: BootInstant) -> PendingAnswers<'_> {
        self.run_of(commands, until, Precedence::Usual)
    }

    /// [`run_by`](Link::run_by), with this precedence.
    pub(crate) fn run_of(
        &self,
        commands: Vec<Command>,
        until: BootInstant,
        precedence: Precedence,
    ) -> PendingAnswers<'_> {
        Box::pin(async move {
            if commands.is_empty() {
                return Vec::new();
            }
            match self.for_steps_of(until, precedence).await {
                Ok(mut connection) => connection.run(commands).await,
                Err(failure) => commands.iter().map(|_| CommandAnswer::Failed(failure.clone())).collect(),
            }
        })
    }

    /// [`run_by`](Link::run_by), together with what others on this runtime ask for at the same moment.
    pub(crate) async fn run_with_others(
        self: &Arc<Self>,
        commands: Vec<Command>,
        until: BootInstant,
    ) -> Vec<CommandAnswer> {
        self.run_under_looks(commands, None, until).await.0
    }

    /// [`run_with_others`](Link::run_with_others), with looks by this command, the same one for all of a client's requests.
    pub(crate) async fn run_under_looks(
        self: &Arc<Self>,
        commands: Vec<Command>,
        look: Option<&Command>,
        until: BootInstant,
    ) -> (Vec<CommandAnswer>, Looks) {
        // Counted until the end of this, whichever way it goes.
        let caller = self.caller();
        let commands = match &caller {
            // Not a part of every request's future.
            Some(caller) if !caller.is_alone => match Box::pin(caller.run(self, commands, look, until)).await {
                Ok(answers) => return answers,
                Err(commands) => commands,
            },
            _ => commands,
        };
        self.run_by_itself(commands, look, until, Precedence::Usual).await
    }

    /// [`run_by`](Link::run_by), with a look in front of the commands and one behind them, in the same write.
    async fn run_between_looks(
        &self,
        mut commands: Vec<Command>,
        look: &Command,
        until: BootInstant,
        precedence: Precedence,
    ) -> (Vec<CommandAnswer>, Looks) {
        commands.insert(0, look.clone());
        commands.push(look.clone());
        // Boxed for the reason that is given at `run_by`.
        let exchange: PendingLooks<'_> = Box::pin(async move {
            match self.for_steps_of(until, precedence).await {
                Ok(mut connection) => connection.run_and_note(commands).await,
                Err(failure) => {
                    let failed = |_: &Command| LookAnswer::read_now(CommandAnswer::Failed(failure.clone()));
                    commands.iter().map(failed).collect()
                }
            }
        });
        let mut answers = exchange.await.into_iter();
        let mut look = || LookAnswer::read_now(CommandAnswer::expected(None));
        let (first, last) = (answers.next().unwrap_or_else(&mut look), answers.next_back().unwrap_or_else(&mut look));
        (answers.map(|read| read.answer).collect(), Looks::Shared(Arc::new([first, last])))
    }

    /// [`run_by`](Link::run_by), with this precedence, and with looks around the commands, if there are to be any.
    pub(crate) async fn run_by_itself(
        &self,
        commands: Vec<Command>,
        look: Option<&Command>,
        until: BootInstant,
        precedence: Precedence,
    ) -> (Vec<CommandAnswer>, Looks) {
        match look {
            Some(look) => self.run_between_looks(commands, look, until, precedence).await,
            None => (self.run_of(commands, until, precedence).await, Looks::None),
        }
    }

    /// Sends one command.
    pub(crate) async fn run_one(&self, command: Command) -> CommandAnswer {
        CommandAnswer::expected(self.run(vec![command]).await.pop())
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
        sent_at.plus(self.op_timeout).plus(Duration::from_secs(item_ttl(ttl).into()))
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

    /// The right to have one connection more in use.
    async fn right(&self, until: BootInstant, precedence: Precedence) -> Result<Right<'_>, Failure> {
        self.rights.one(until, precedence).await.ok_or_else(Failure::crowded)
    }

    /// A connection for steps that belong together and end by this instant.
    pub(crate) async fn for_steps(&self, until: BootInstant) -> Result<InUse<'_>, Failure> {
        self.for_steps_of(until, Precedence::Usual).await
    }

    /// [`for_steps`](Link::for_steps), of this precedence.
    async fn for_steps_of(&self, until: BootInstant, precedence: Precedence) -> Result<InUse<'_>, Failure> {
        let mut used = InUse::of(self, self.right(until, precedence).await?, until);
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
        DetachOnDrop::new(&self.home, request)
    }

    /// Counts a caller on the present runtime; `None` if there is none.
    fn caller(&self) -> Option<Caller> {
        let runtime = Handle::try_current().ok()?;
        let batches = self.batches_of(runtime.id());
        let others = batches.callers.fetch_add(1, Ordering::Relaxed);
        Some(Caller { batches, runtime, is_alone: others < MOST_ALONE })
    }

    fn batches_of(&self, runtime: Id) -> Arc<RuntimeBatches> {
        let mut all = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, batches)) = all.iter().find(|(id, _)| *id == runtime) {
            return batches.clone();
        }
        // Those of runtimes on which nothing is under way, ended ones among them, are forgotten.
        all.retain(|(_, batches)| Arc::strong_count(batches) > 1);
        let batches = Arc::<RuntimeBatches>::default();
        all.push((runtime, batches.clone()));
        batches
    }
}

impl Looks {
    /// Those that failed, if there were to be any.
    fn failed(look: Option<&Command>, failure: &Failure) -> Self {
        let unread = || LookAnswer::read_now(CommandAnswer::Failed(failure.clone()));
        look.map_or(Self::None, |_| Self::Shared(Arc::new([unread(), unread()])))
    }
}

impl LookAnswer {
    fn read_now(answer: CommandAnswer) -> Self {
        Self { answer, read_at: SystemClock.now() }
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
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.batches.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'a> InUse<'a> {
    /// The use of a connection that is about to be found.
    fn of(link: &'a Link, right: Right<'a>, until: BootInstant) -> Self {
        link.pool().in_use += 1;
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        Self { link, pipe: None, moves: 0, until, runtime, right }
    }

    /// Sends commands in one write, and answers each, in order.
    pub(crate) async fn run(&mut self, commands: Vec<Command>) -> Vec<CommandAnswer> {
        self.run_with(commands, |answer| answer).await.into_iter().map(CommandAnswer::expected).collect()
    }

    /// [`run`](InUse::run), with the instants at which the answers were read.
    async fn run_and_note(&mut self, commands: Vec<Command>) -> Vec<LookAnswer> {
        let answers = self.run_with(commands, LookAnswer::read_now).await;
        let untold = || LookAnswer::read_now(CommandAnswer::expected(None));
        answers.into_iter().map(|answer| answer.unwrap_or_else(untold)).collect()
    }

    /// Sends commands in one write, and makes something of each answer as soon as that is read. Each is told.
    async fn run_with<T>(&mut self, commands: Vec<Command>, note: impl Fn(CommandAnswer) -> T) -> Vec<Option<T>> {
        let mut answers: Vec<_> = commands.iter().map(|_| None).collect();
        if let Some(pipe) = &mut self.pipe {
            let until = self.until;
            pipe.exchange(commands, |_| until, until, |at, answer| answers[at] = Some(note(answer))).await;
        }
        answers
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

/// A request that is carried through once it was polled, although nobody waits for it any more.
///
/// A claim that was sent may be carried out, whatever becomes of who sent it. To know what it came to, its answer has to be read.
pub(crate) struct DetachOnDrop<T: Send + 'static> {
    home: HomeRuntime,
    work: Option<Work<T>>,
    began: bool,
}

impl<T: Send + 'static> DetachOnDrop<T> {
    fn new(home: &HomeRuntime, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { home: home.clone(), work: Some(Box::pin(work)), began: false }
    }
}

impl<T: Send + 'static> Future for DetachOnDrop<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.began = true;
        // A future that is polled after its end never ends.
        let Some(work) = &mut self.work else { return Poll::Pending };
        let output = std::task::ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(output)
    }
}

impl<T: Send + 'static> Drop for DetachOnDrop<T> {
    fn drop(&mut self) {
        if let (Some(work), true) = (self.work.take(), self.began) {
            self.home.carry_through(work);
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
