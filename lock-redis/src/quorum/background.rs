//! The one task of a client: it waits for the answers for which no caller waits, and gives back what servers that could
//! not be reached still hold. When the client is gone it finishes the former, and closes the connections.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use lock_core::clock::{Clock, SystemClock};
use tokio::runtime::{EnterGuard, Handle};
use tokio::sync::{Notify, mpsc};

use super::member::Member;

/// The time between two looks whether a server can be reached again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Takes futures that are to be finished; the task ends when the last one of these is gone.
#[derive(Debug, Clone)]
pub(super) struct Background {
    inbox: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
    runtime: Handle,
}

impl Background {
    /// Starts the task, on the present runtime, for these members, which say through `owing` that they have something to
    /// give back.
    pub(super) fn start(members: Arc<[Arc<Member>]>, owing: Arc<Notify>) -> Self {
        let (sender, inbox) = mpsc::unbounded_channel();
        tokio::spawn(run(members, owing, inbox));
        Self { inbox: sender, runtime: Handle::current() }
    }

    /// Enters the runtime of the task: timers that are made meanwhile are its own.
    pub(super) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    pub(super) fn finish(&self, rest: BoxFuture<'static, ()>) {
        // Only a runtime that is shut down has ended the task before.
        let _ = self.inbox.send(rest);
    }
}

async fn run(
    members: Arc<[Arc<Member>]>,
    owing: Arc<Notify>,
    mut inbox: mpsc::UnboundedReceiver<BoxFuture<'static, ()>>,
) {
    let mut rest = FuturesUnordered::new();
    let mut look_at = SystemClock.now().plus(LOOK_EVERY);
    loop {
        let owes = members.iter().any(|member| member.owes());
        tokio::select! {
            next = inbox.recv() => match next {
                Some(next) => rest.push(next),
                None => break,
            },
            Some(()) = rest.next() => {}
            () = owing.notified() => {}
            () = SystemClock.sleep_until(look_at), if owes => {}
        }
        let now = SystemClock.now();
        if now >= look_at {
            look_at = now.plus(LOOK_EVERY);
            for member in &*members {
                rest.extend(member.send_owed());
            }
        }
    }
    while rest.next().await.is_some() {}
    for member in &*members {
        member.link.close();
    }
}
