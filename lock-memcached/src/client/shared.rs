//! A connection that many callers use at once: what they ask for at the same time goes out together, and nobody waits for
//! another's reply.
//!
//! A task writes and reads for as long as there is something to do, and gives the connection back afterwards. A request that it
//! has not begun to send is given back too, and goes over another connection. What was sent is read to its end, whether anybody
//! waits for it or not.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use super::cas::CasNumber;
use super::connection::{Connection, poll_exchange};
use super::exchange::{Answer, Sends};
use super::pipeline::Pipeline;
use super::protocol::{Command, CommandAnswer};
use crate::error::Failure;

/// Most requests that wait to be put into words, and most that are under way. Others go over connections of their own.
const MOST_WAITING: usize = 8192;

/// Most requests that are taken at once.
const MOST_TOGETHER: usize = 256;

/// Bytes that are put into words before the former ones are written: one request more at most.
const MOST_BYTES: usize = 64 << 10;

/// Time between two looks at the clock. A connection that nobody has used from one to the next is given back.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// A connection that many callers use at once, as each of them has it.
#[derive(Debug, Clone)]
pub(super) struct SharedConnection {
    number: u64,
    /// The instant of its first answer.
    answered: Arc<OnceLock<BootInstant>>,
    requests: mpsc::Sender<Request>,
}

/// The task's end of a connection.
#[derive(Debug)]
pub(super) struct SharedConnectionTask {
    stream: TcpStream,
    pipeline: Pipeline<oneshot::Sender<Answer>>,
    answered: Arc<OnceLock<BootInstant>>,
    requests: mpsc::Receiver<Request>,
}

/// A request on its way to the task.
#[derive(Debug)]
struct Request {
    commands: Vec<Command>,
    until: BootInstant,
    from: oneshot::Sender<Answer>,
}

impl SharedConnection {
    /// Shares a connection over which nothing is under way.
    pub(super) fn new(connection: Connection) -> (Self, SharedConnectionTask) {
        let (sender, requests) = mpsc::channel(MOST_WAITING);
        let (stream, pipeline) = connection.into_parts();
        let answered = Arc::new(pipeline.answered().map_or_else(OnceLock::new, OnceLock::from));
        let task = SharedConnectionTask { stream, pipeline: pipeline.reused(), answered: answered.clone(), requests };
        (Self { number: task.pipeline.number(), answered, requests: sender }, task)
    }

    /// Whether it takes requests.
    pub(super) fn is_open(&self) -> bool {
        !self.requests.is_closed()
    }
}

impl Sends for SharedConnection {
    fn knows(&self, seen: CasNumber) -> bool {
        seen.counts_over(self.number, self.answered.get().copied())
    }

    async fn send(&mut self, commands: Vec<Command>, until: BootInstant) -> Answer {
        let (from, answer) = oneshot::channel();
        let many = commands.len();
        if let Err(refused) = self.requests.try_send(Request { commands, until, from }) {
            return Err(refused.into_inner().commands);
        }
        // The task answers everything that it has taken; it ends in the middle with its runtime only.
        answer.await.unwrap_or_else(|_| Ok((0..many).map(|_| CommandAnswer::Failed(Failure::senseless())).collect()))
    }
}

impl SharedConnectionTask {
    /// Writes and reads until nobody has the connection any more, nobody has used it for a while, or something goes wrong; then
    /// until what was sent is answered. Returns the connection if it can be used further.
    pub(super) async fn serve(mut self) -> Option<Connection> {
        let (mut batch, mut waiting) = (Vec::new(), VecDeque::new());
        let next_look = || SystemClock.sleep_until(SystemClock.now().plus(BETWEEN_LOOKS));
        let mut timer = pin!(next_look());
        let (mut is_open, mut is_used) = (true, true);
        while is_open || self.pipeline.is_awaited() {
            let may_take = is_open && waiting.is_empty() && self.has_room();
            let Self { stream, pipeline, requests, .. } = &mut self;
            let mut is_look = false;
            tokio::select! {
                biased;
                exchanged = poll_fn(|context| poll_turn(stream, pipeline, context)) => {
                    if let Err(error) = exchanged {
                        pipeline.fail(error);
                        is_open = false;
                    }
                }
                many = requests.recv_many(&mut batch, MOST_TOGETHER), if may_take => {
                    is_open = many > 0;
                    is_used = true;
                    // Those who are about to ask are not far behind.
                    tokio::task::yield_now().await;
                    while batch.len() < MOST_TOGETHER && let Ok(request) = requests.try_recv() {
                        batch.push(request);
                    }
                    waiting.extend(batch.drain(..));
                }
                () = &mut timer => {
                    is_look = true;
                    is_open &= std::mem::take(&mut is_used) || !pipeline.is_idle();
                    timer.set(next_look());
                }
            }
            let now = SystemClock.now();
            while self.has_room()
                && let Some(Request { commands, until, from }) = waiting.pop_front()
            {
                if !from.is_closed() {
                    self.pipeline.send(commands, now, until, from);
                }
            }
            // A little too early rather than too late: the caller is told by this, and not by a clock of its own.
            let soon = now.plus(BETWEEN_LOOKS);
            if is_look || self.pipeline.is_late(soon) {
                self.pipeline.tell_late(soon);
            }
            self.tell();
            is_open &= !self.pipeline.is_in_doubt();
            if !is_open {
                self.give_back(&mut waiting).await;
            }
        }
        let is_usable = self.pipeline.is_in_order();
        is_usable.then(|| Connection::from_parts(self.stream, self.pipeline.reused()))
    }

    /// Whether more may be put into words.
    fn has_room(&self) -> bool {
        self.pipeline.outgoing().len() < MOST_BYTES && self.pipeline.len() < MOST_WAITING
    }

    /// Tells the callers whose requests are answered.
    fn tell(&mut self) {
        if let Some(answered) = self.pipeline.answered() {
            self.answered.get_or_init(|| answered);
        }
        for (from, answer) in self.pipeline.done() {
            // A caller that has gone does not want it.
            let _ = from.send(answer);
        }
    }

    /// Gives requests that were not sent back to their callers, and takes no more.
    async fn give_back(&mut self, waiting: &mut VecDeque<Request>) {
        self.requests.close();
        // Also for callers that are just putting one in: none is left behind.
        while let Some(request) = self.requests.recv().await {
            waiting.push_back(request);
        }
        for Request { commands, from, .. } in waiting.drain(..) {
            let _ = from.send(Err(commands));
        }
    }
}

/// Writes and reads what can be. Ready when something was received, or there is room again for what is to be written.
fn poll_turn<T>(stream: &mut TcpStream, pipeline: &mut Pipeline<T>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
    let was_full = pipeline.outgoing().len() >= MOST_BYTES;
    match poll_exchange(stream, pipeline, context) {
        Poll::Pending if was_full && pipeline.outgoing().len() < MOST_BYTES => Poll::Ready(Ok(())),
        turn => turn,
    }
}
