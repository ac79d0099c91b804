//! Requests that go together: those that many tasks on one runtime ask for at the same moment, in one write over one connection.
//!
//! The requests of up to two callers are sent at once, as if there were no batches ([`Link::run_with_others`]). The others join the
//! [`Batch`] of their runtime. One task on that runtime, for as long as there are any, sends what has come together whenever it
//! runs. A batch waits for the reply to the one before only where replies come soon, and no longer than that takes: several may be
//! on their way over as many connections.
//!
//! Requests that are looked at a key for, the epoch, have two looks for all of a batch: one in front of its first command, and one behind
//! its last. Whoever is between them needs no look of his own.
//!
//! Each request has its own outcome. Whoever goes away, or has no time left, before its batch is taken was never sent. From then on it may
//! have been sent; its answer is read to its end, whether anybody waits for it or not. A runtime that nobody drives any more holds up
//! its own requests only.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Batch, BatchPlace, Joined, wait};
use tokio::sync::{Notify, oneshot};

use super::{Caller, InUse, Link, LookAnswer, Looks};
use crate::client::protocol::{Command, CommandAnswer};
use crate::error::Failure;

/// The most requests that go together, and the most bytes: they hold up the server's other clients for far less than a millisecond.
const MOST: usize = 64;
const MOST_BYTES: usize = 64 * 1024;

/// The most batches of one runtime that are on their way at once.
const MOST_BATCHES: usize = 8;

/// The time within which a reply is soon. The next batch waits for such a reply, and so collects more than a few requests.
const SOON: Duration = Duration::from_millis(2);

/// The most commands of a request that goes with others.
const MOST_COMMANDS: usize = 16;

/// The requests of one runtime.
#[derive(Debug, Default)]
pub(super) struct RuntimeBatches {
    batch: Mutex<Batch<BatchMember>>,
    /// The callers whose requests are on their way, or wait to be.
    pub(super) callers: AtomicUsize,
    /// Tells the driver that somebody has come.
    joined: Notify,
}

/// A request in a batch.
#[derive(Debug)]
struct BatchMember {
    commands: Vec<Command>,
    /// The look at the epoch.
    look: Option<Command>,
    until: BootInstant,
    told: oneshot::Sender<Told>,
}

/// The news for a request.
#[derive(Debug)]
enum Told {
    Answers(Vec<CommandAnswer>, Looks),
    /// It was not sent, and goes on by itself.
    GoOn(Vec<Command>),
}

impl RuntimeBatches {
    fn batch(&self) -> MutexGuard<'_, Batch<BatchMember>> {
        // Every critical section leaves it valid after each statement.
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Caller {
    /// Has a request sent together with others.
    ///
    /// # Errors
    /// Its commands, if it is to go on by itself: at once, if it would hold the others up.
    pub(super) async fn run(
        &self,
        link: &Arc<Link>,
        commands: Vec<Command>,
        look: Option<&Command>,
        until: BootInstant,
    ) -> Result<(Vec<CommandAnswer>, Looks), Vec<Command>> {
        // A command that cannot be put into words must not cost its neighbours.
        if !(1..=MOST_COMMANDS).contains(&commands.len()) || !commands.iter().all(Command::is_sendable) {
            return Err(commands);
        }
        let (many, changes) = (commands.len(), Changes::of(&commands));
        let (stay, told) = self.join(link, commands, look, until);
        let news = wait::before(&SystemClock, |_| until, told).await.and_then(Result::ok);
        let failed = match (news, stay.leave()) {
            (Some(Told::Answers(answers, looks)), _) => return Ok((answers, looks)),
            (Some(Told::GoOn(commands)), _) => return Err(commands),
            // Whoever waits to be sent waits for a connection.
            (None, Some(_)) => |_| Failure::unconnected(),
            // Sent, perhaps: its time is over, or nobody is left to read its answer.
            (None, None) => |changes| Failure::of_io(std::io::ErrorKind::TimedOut.into(), changes),
        };
        let answers = (0..many).map(|position| CommandAnswer::Failed(failed(changes.has(position)))).collect();
        Ok((answers, Looks::failed(look, &failed(false))))
    }

    /// Puts a request into the batch, and sees to it that this is sent if nobody else does.
    fn join(
        &self,
        link: &Arc<Link>,
        commands: Vec<Command>,
        look: Option<&Command>,
        until: BootInstant,
    ) -> (Stay<'_>, oneshot::Receiver<Told>) {
        let (told, news) = oneshot::channel();
        let bytes = commands.iter().map(Command::bytes).sum();
        let member = BatchMember { commands, look: look.cloned(), until, told };
        let Joined { place, sees_to_it, .. } = self.batches.batch().join(member, bytes);
        if sees_to_it {
            let driver = Driver { link: link.clone(), batches: self.batches.clone(), is_done: false };
            self.runtime.spawn(driver.run());
        } else {
            self.batches.joined.notify_one();
        }
        (Stay { batches: &self.batches, place }, news)
    }
}

/// The commands of a request that change something, a bit for each.
#[derive(Debug, Clone, Copy)]
struct Changes(u32);

impl Changes {
    fn of(commands: &[Command]) -> Self {
        let bits = (0..MOST_COMMANDS).zip(commands).map(|(position, command)| u32::from(command.changes()) << position);
        Self(bits.sum())
    }

    fn has(self, position: usize) -> bool {
        self.0 >> position & 1 == 1
    }
}

/// The stay of a request in a batch.
struct Stay<'a> {
    batches: &'a RuntimeBatches,
    place: BatchPlace,
}

impl Stay<'_> {
    /// Takes the request back, if it was not taken to be sent.
    fn leave(&self) -> Option<BatchMember> {
        self.batches.batch().leave(self.place)
    }
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

/// The task that sends the batches of one runtime until nobody waits.
struct Driver {
    link: Arc<Link>,
    batches: Arc<RuntimeBatches>,
    is_done: bool,
}

/// A connection that is waited for, or opened.
type Opening<'a> = Pin<Box<dyn Future<Output = Result<InUse<'a>, Failure>> + Send + 'a>>;

/// Batches on their way.
#[derive(Default)]
struct InFlight<'a> {
    batches: Vec<Pin<Box<dyn Future<Output = Duration> + Send + 'a>>>,
    /// The time that the last one took.
    took: Duration,
    /// The instant at which the last one was sent.
    sent_at: Option<BootInstant>,
}

impl Driver {
    async fn run(mut self) {
        let (link, batches) = (self.link.clone(), self.batches.clone());
        let mut in_flight = InFlight::default();
        loop {
            // The tasks that are ready run first: they may be about to ask.
            tokio::task::yield_now().await;
            while in_flight.has_room() && !batches.batch().is_empty() {
                let until = link.deadline();
                let mut opening: Opening<'_> = Box::pin(link.for_steps(until));
                let opened = poll_fn(|context| match opening.as_mut().poll(context) {
                    Poll::Ready(opened) => Poll::Ready(Some(opened)),
                    // The connection of a batch that has ended serves sooner than one that is being opened.
                    Poll::Pending => in_flight.poll(context).map(|()| None),
                });
                match opened.await {
                    Some(Ok(connection)) => in_flight.sends(connection, batches.batch().take(MOST, MOST_BYTES)),
                    // There was none in time for the first of them; the others have time left.
                    Some(Err(failure)) if SystemClock.now() >= until => batches.refuse_late(&failure),
                    Some(Err(failure)) => batches.refuse(&failure),
                    None => {}
                }
                // The request is written now, before the tasks that are ready run.
                let _ = poll_fn(|context| Poll::Ready(in_flight.poll(context))).await;
                tokio::task::yield_now().await;
            }
            if in_flight.batches.is_empty() && batches.batch().ends() {
                self.is_done = true;
                return;
            }
            let room_at = in_flight.has_room_at(SystemClock.now());
            let mut next = pin!(async {
                match room_at {
                    Some(at) => SystemClock.sleep_until(at).await,
                    None => pending().await,
                }
                if batches.batch().is_empty() {
                    batches.joined.notified().await;
                }
            });
            poll_fn(|context| match in_flight.poll(context) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => next.as_mut().poll(context),
            })
            .await;
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let left = self.batches.batch().give_up();
        for BatchMember { commands, told, .. } in left {
            let _ = told.send(Told::GoOn(commands));
        }
    }
}

impl RuntimeBatches {
    /// Tells everybody who waits that there is no connection.
    fn refuse(&self, failure: &Failure) {
        self.refuse_those(failure, |_| true);
    }

    /// Tells everybody whose time is over why there was no connection.
    fn refuse_late(&self, failure: &Failure) {
        let now = SystemClock.now();
        self.refuse_those(failure, |member| member.until <= now);
    }

    fn refuse_those(&self, failure: &Failure, these: impl Fn(&BatchMember) -> bool) {
        let members = self.batch().remove(these);
        members.into_iter().for_each(|member| member.fails(failure));
    }
}

impl BatchMember {
    fn fails(self, failure: &Failure) {
        let answers = self.commands.iter().map(|_| CommandAnswer::Failed(failure.clone())).collect();
        let looks = Looks::failed(self.look.as_ref(), failure);
        // Whoever has gone away is not told.
        let _ = self.told.send(Told::Answers(answers, looks));
    }
}

impl<'a> InFlight<'a> {
    /// Sends a batch over a connection.
    fn sends(&mut self, connection: InUse<'a>, members: Vec<BatchMember>) {
        let now = SystemClock.now();
        let (members, late): (Vec<_>, Vec<_>) = members.into_iter().partition(|member| now < member.until);
        late.into_iter().for_each(|member| member.fails(&Failure::late()));
        if !members.is_empty() {
            self.sent_at = Some(now);
            self.batches.push(Box::pin(exchange(connection, members, now)));
        }
    }

    /// The instant from which on one more may be on its way; `None` if that is only when one of them has ended.
    fn has_room_at(&self, now: BootInstant) -> Option<BootInstant> {
        match (self.batches.len(), self.sent_at) {
            (MOST_BATCHES.., _) => None,
            (1.., Some(sent_at)) if self.took < SOON => Some(sent_at.plus(SOON).max(now)),
            _ => Some(now),
        }
    }

    /// Whether one more may be on its way now.
    fn has_room(&self) -> bool {
        let now = SystemClock.now();
        self.has_room_at(now).is_some_and(|at| at <= now)
    }

    /// Ready when one of them has ended.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (before, took) = (self.batches.len(), &mut self.took);
        self.batches.retain_mut(|batch| match batch.as_mut().poll(context) {
            Poll::Ready(time) => {
                *took = time;
                false
            }
            Poll::Pending => true,
        });
        if self.batches.len() < before { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A request whose batch is on its way.
struct SentRequest {
    /// Its first command among those of the batch.
    first: usize,
    answers: Vec<Option<CommandAnswer>>,
    looks: Looks,
    /// The number of commands that are not answered yet, and one for the looks.
    left: usize,
    is_under_looks: bool,
    told: Option<oneshot::Sender<Told>>,
}

impl SentRequest {
    /// Takes an answer, and tells all of them with the last one.
    fn takes(&mut self, at: usize, answer: CommandAnswer) {
        let Some(place) = self.answers.get_mut(at - self.first) else { return };
        if place.replace(answer).is_none() {
            self.left -= 1;
        }
        self.tell();
    }

    /// Takes the answers to the looks, if it waits for them.
    fn sees(&mut self, both: &Arc<[LookAnswer; 2]>) {
        if self.is_under_looks {
            self.looks = Looks::Shared(both.clone());
            self.left -= 1;
            self.tell();
        }
    }

    fn tell(&mut self) {
        if self.left == 0
            && let Some(told) = self.told.take()
        {
            let answers = std::mem::take(&mut self.answers).into_iter().map(CommandAnswer::expected).collect();
            // Whoever has gone away is not told.
            let _ = told.send(Told::Answers(answers, std::mem::replace(&mut self.looks, Looks::None)));
        }
    }
}

impl InUse<'_> {
    /// [`run`](InUse::run), for callers each of which is told its answers as soon as they are read. `sent_by` says of each command by when
    /// it has to be sent; everything is over by `until`.
    async fn run_together(
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
}

/// Sends a batch, and tells each its answers. Returns the time that it took.
async fn exchange(mut connection: InUse<'_>, members: Vec<BatchMember>, began: BootInstant) -> Duration {
    let Some(until) = members.iter().map(|member| member.until).max() else { return Duration::ZERO };
    // One client has one epoch.
    let look = members.iter().find_map(|member| member.look.clone());
    // Of each command whose it is, and by when it has to be sent.
    let many = members.iter().map(|member| member.commands.len()).sum::<usize>() + 2;
    let (mut commands, mut owners) = (Vec::with_capacity(many), Vec::with_capacity(many));
    let mut requests = Vec::with_capacity(members.len());
    if let Some(look) = &look {
        owners.push((None, until));
        commands.push(look.clone());
    }
    for (owner, member) in members.into_iter().enumerate() {
        let (many, is_under_looks) = (member.commands.len(), member.look.is_some());
        requests.push(SentRequest {
            first: commands.len(),
            answers: (0..many).map(|_| None).collect(),
            looks: Looks::None,
            left: many + usize::from(is_under_looks),
            is_under_looks,
            told: Some(member.told),
        });
        owners.extend(std::iter::repeat_n((Some(owner), member.until), many));
        commands.extend(member.commands);
    }
    if let Some(look) = &look {
        owners.push((None, until));
        commands.push(look.clone());
    }
    let mut first = None;
    let tell = |at: usize, answer| match owners[at].0 {
        Some(owner) => requests[owner].takes(at, answer),
        None if at == 0 => first = Some(LookAnswer::read_now(answer)),
        None => {
            let last = LookAnswer::read_now(answer);
            let first = first.take().unwrap_or_else(|| LookAnswer::read_now(CommandAnswer::expected(None)));
            let both = Arc::new([first, last]);
            requests.iter_mut().for_each(|request| request.sees(&both));
        }
    };
    connection.run_together(commands, |at| owners[at].1, until, tell).await;
    SystemClock.now().since(began)
}
