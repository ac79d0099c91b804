//! All servers of a quorum, and requests to all of them at once.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;
use futures_util::task::noop_waker_ref;
use futures_util::{FutureExt, StreamExt};
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::Doubts;
use lock_core::{Error, Phase};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::unconstrained;

use super::background::{self, Unfinished};
use super::member::Member;
use crate::client::dial::Dial;
use crate::client::link::predecessors::Predecessors;
use crate::quorum::NAME;
use crate::quorum::ballot::majority;
use crate::quorum::error::too_few;

/// The time for which the others are waited for when a majority is connected: a first lock that only just a majority holds
/// would not survive the next outage.
const GRACE: Duration = Duration::from_millis(100);

/// The time for which an answer is waited for beyond its request's. It matters only if the client's runtime, which times the
/// requests, stands still.
const SLACK: Duration = Duration::from_millis(50);

/// The servers of one client, each of which has a number from 0 on.
#[derive(Debug)]
pub(in crate::quorum) struct Members {
    all: Arc<[Arc<Member>]>,
    op_timeout: Duration,
    /// The longest TTL that is let through, if there is one: servers that have started more lately than that are not asked.
    longest_ttl: Option<Duration>,
    /// The earlier connections of all of them, over which requests may still be carried out.
    predecessors: Arc<Predecessors>,
    background: Background,
}

/// The task for answers for which no caller waits.
#[derive(Debug, Clone)]
struct Background {
    inbox: mpsc::Sender<Unfinished>,
    /// Its runtime, which is the client's.
    runtime: Handle,
}

impl Members {
    /// Dials each server in the background, for ever. Dropping the last handle closes the connections.
    pub(in crate::quorum) fn start(dials: &[Arc<Dial>], op_timeout: Duration, longest_ttl: Option<Duration>) -> Self {
        let (predecessors, pending_added) = (Arc::<Predecessors>::default(), Arc::<Notify>::default());
        let start =
            |dial: &Arc<Dial>| Member::start(dial.clone(), predecessors.clone(), op_timeout, pending_added.clone());
        let all: Arc<[_]> = dials.iter().map(start).collect();
        let background =
            Background { inbox: background::start(all.clone(), pending_added), runtime: Handle::current() };
        Self { all, op_timeout, longest_ttl, predecessors, background }
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

    /// Sends a request to every server to which there is a connection.
    pub(in crate::quorum) fn ask_reachable<T, F>(&self, request: impl Fn(Arc<Member>) -> F) -> FanOut<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let reachable = self.all.iter().filter(|member| member.link.is_up());
        FanOut::all(&self.background, reachable.map(|member| request(member.clone())))
    }

    /// The reasons why there is no connection to some of the servers.
    pub(in crate::quorum) fn outages(&self) -> impl Iterator<Item = Error> {
        self.all.iter().filter_map(|member| member.link.outage())
    }

    /// The server of this number.
    pub(in crate::quorum) fn at(&self, server: usize) -> &Member {
        &self.all[server]
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

    /// Returns the longest TTL that a grant of this client may have.
    pub(in crate::quorum) fn longest_lease(&self) -> Duration {
        self.longest_ttl.unwrap_or_else(|| self.predecessors.longest_lease())
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

/// The answers of several servers, in the order in which they come.
///
/// All requests are on their way when this exists: what is sent to the same servers afterwards, on the same connections,
/// is carried out afterwards. Whatever has not been answered when this is dropped goes on in the background, so that a
/// server that has stopped answering is noticed although nobody waits for it.
///
/// The requests are polled in the context of the client's runtime, on whatever runtime the caller is: their timers have to
/// outlive the caller's.
pub(in crate::quorum) struct FanOut<T: Send + 'static> {
    pending: Vec<BoxFuture<'static, (usize, T)>>,
    answered: VecDeque<(usize, T)>,
    background: Background,
}

impl<T: Send + 'static> FanOut<T> {
    /// Sends every request; each answer comes with the number of its request.
    fn all<F>(background: &Background, requests: impl Iterator<Item = F>) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        Self::some(background, requests.enumerate())
    }

    /// Sends requests of these numbers.
    fn some<F>(background: &Background, requests: impl Iterator<Item = (usize, F)>) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut asked = Self { pending: Vec::new(), answered: VecDeque::new(), background: background.clone() };
        for (number, request) in requests {
            // Unconstrained: a caller that has used up its share of the thread would send later otherwise.
            asked.pending.push(Box::pin(unconstrained(request.map(move |answer| (number, answer)))));
        }
        asked.poll_all(&mut Context::from_waker(noop_waker_ref()));
        asked
    }

    /// The next answer; `None` when all have come.
    ///
    /// # Cancel safety
    /// May be dropped: no answer is lost.
    pub(in crate::quorum) async fn next(&mut self) -> Option<(usize, T)> {
        std::future::poll_fn(|cx| {
            self.poll_all(cx);
            match self.answered.pop_front() {
                Some(answer) => Poll::Ready(Some(answer)),
                None if self.pending.is_empty() => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// The next answer; `None` when all have come, or none in time although the requests themselves end then.
    ///
    /// # Cancel safety
    /// As [`next`](FanOut::next).
    pub(in crate::quorum) async fn next_until(&mut self, until: BootInstant) -> Option<(usize, T)> {
        tokio::select! {
            biased;
            answer = self.next() => answer,
            () = SystemClock.sleep_until(until.plus(SLACK)) => None,
        }
    }

    /// Has the answers that are still to come looked at in the background.
    pub(in crate::quorum) fn look_at_the_rest(mut self, look: impl Fn(T) + Send + 'static) {
        self.answered.drain(..).for_each(|(_, answer)| look(answer));
        let mut rest: FuturesUnordered<_> = std::mem::take(&mut self.pending).into_iter().collect();
        if !rest.is_empty() {
            self.finish(Box::pin(async move {
                while let Some((_, answer)) = rest.next().await {
                    look(answer);
                }
            }));
        }
    }

    /// Has what is left finished in the background, or gives it up if there is too much to be finished.
    fn finish(&self, rest: Unfinished) {
        // Only a runtime that is shut down has ended the task before.
        let _ = self.background.inbox.try_send(rest);
    }

    fn poll_all(&mut self, cx: &mut Context<'_>) {
        // Timers that are made meanwhile are the client's.
        let _home = self.background.runtime.enter();
        let mut i = 0;
        while i < self.pending.len() {
            match Pin::new(&mut self.pending[i]).poll(cx) {
                Poll::Ready(answer) => {
                    drop(self.pending.swap_remove(i));
                    self.answered.push_back(answer);
                }
                Poll::Pending => i += 1,
            }
        }
    }
}

impl<T: Send + 'static> Drop for FanOut<T> {
    fn drop(&mut self) {
        if !self.pending.is_empty() {
            let rest = join_all(std::mem::take(&mut self.pending));
            self.finish(Box::pin(async move { drop(rest.await) }));
        }
    }
}
