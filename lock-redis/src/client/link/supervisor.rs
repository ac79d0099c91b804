//! The task of a link, which replaces every connection that breaks, until the link is closed.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::Error;
use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{log, supervised};

use super::Link;
use super::live::{Live, LiveState, Pulse};
use super::predecessors::Predecessor;
use crate::client::compare_delete::CompareDelete;
use crate::client::pace::Pace;

/// The requests of callers that are on their way at once over one connection. Further ones wait for their turn in this client.
/// Urgent ones pass them (renewals, signs of life, the parts of a quorum): however many tasks ask for locks, a renewal has no
/// more than these before it, and those whose callers have gone away.
const ON_THEIR_WAY: usize = 1024;

/// The round trip for which [`ON_THEIR_WAY`] is meant. One that is longer has as many more for each time that it contains
/// this, up to [`MOST_ON_THEIR_WAY`]: the way holds them, not the server.
const FAR: Duration = Duration::from_millis(100);
const MOST_ON_THEIR_WAY: usize = 32 * ON_THEIR_WAY;

impl Link {
    /// Starts the task that replaces every connection which breaks, from this one on.
    pub(super) fn keep_up(self: &Arc<Self>, mut first: Option<PresentConnection>) {
        let link = self.clone();
        tokio::spawn(supervised("link", move || supervise(link.clone(), first.take())));
    }

    /// Attempts to connect once.
    pub(super) async fn dial_once(self: &Arc<Self>) -> Result<PresentConnection, Error> {
        let (server, mut commands) = self.dial.commands().await?;
        let sent_at = SystemClock.now();
        let question = self.dial.prefix().map(CompareDelete::question);
        let killing = self.predecessors.kill_all(&server, &mut commands.connection, question);
        let (identity, answer) = self.dial.in_time(killing).await?;
        let compare_delete = answer.as_ref().and_then(CompareDelete::named);
        let now = SystemClock.now();
        let generation = self.predecessors.next_generation();
        *self.last_error() = None;
        let (pulse, turns) = (Pulse::new(sent_at, now, self.op_timeout()), on_their_way(now.since(sent_at)));
        let identity = Some(Predecessor::new(generation, server.clone(), identity));
        let live =
            Live { state: Arc::new(LiveState::new(generation, server, now, pulse, turns, compare_delete)), commands };
        let connection = PresentConnection { link: self.clone(), identity };
        {
            let mut presence = self.presence.write().unwrap_or_else(PoisonError::into_inner);
            presence.newest = generation;
            presence.live = Some(live);
        }
        self.predecessors.was_made(generation);
        Ok(connection)
    }

    /// Whether there has been no connection yet.
    fn has_had_none(&self) -> bool {
        self.presence.read().unwrap_or_else(PoisonError::into_inner).newest == 0
    }
}

/// The present connection in the hands of the link's task. Dropped, also by a panic of that, it is given up and counts as a predecessor:
/// what it carried may still be carried out.
pub(super) struct PresentConnection {
    link: Arc<Link>,
    identity: Option<Predecessor>,
}

impl Drop for PresentConnection {
    fn drop(&mut self) {
        self.link.end();
        if let Some(identity) = self.identity.take() {
            self.link.predecessors.add(identity, self.link.op_timeout());
        }
    }
}

/// Replaces every connection that breaks, until the link is closed.
async fn supervise(link: Arc<Link>, first: Option<PresentConnection>) {
    let mut pace = Pace::default();
    let mut present = match first {
        Some(first) => Some(first),
        None => redial(&link, &mut pace).await,
    };
    while let Some(connection) = present {
        let began = SystemClock.now();
        // Also told of connections that have been replaced since.
        while let Some(live) = link.present() {
            tokio::select! {
                () = link.broken.notified() => {}
                () = live.commands.ended() => link.distrust(live.generation),
                () = link.look_after(&live) => {}
            }
        }
        drop(connection);
        pace.ended_after(SystemClock.now().since(began));
        present = redial(&link, &mut pace).await;
    }
}

/// Dials until a connection is made; `None` once the link is closed.
async fn redial(link: &Arc<Link>, pace: &mut Pace) -> Option<PresentConnection> {
    let is_first = link.has_had_none();
    loop {
        let pause = pace.pause();
        if !pause.is_zero() && !link.is_closed() {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = link.hurried.notified() => {}
            }
        }
        // The attempt that begins now is the answer to it. One that comes later is kept for the next pause. Closing the link notifies too,
        // after it has said so.
        let _ = link.hurried.notified().now_or_never();
        if link.is_closed() {
            return None;
        }
        match link.dial_once().await {
            Ok(next) => {
                if link.is_closed() {
                    // Closed while it was made.
                    link.end();
                }
                if !is_first {
                    link.predecessors.changed();
                    log(|| tracing::info!(server = link.server(), "reconnected"));
                }
                return Some(next);
            }
            Err(error) => {
                log(|| tracing::debug!(server = link.server(), %error, "cannot connect"));
                *link.last_error() = Some(error);
            }
        }
    }
}

/// The requests that may be on their way at once where a round trip takes so long.
fn on_their_way(round_trip: Duration) -> usize {
    let times = usize::try_from(round_trip.as_millis() / FAR.as_millis()).unwrap_or(usize::MAX);
    ON_THEIR_WAY.saturating_mul(times.max(1)).min(MOST_ON_THEIR_WAY)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use lock_core::{ErrorKind, Phase};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::address::Address;
    use crate::client::dial::{Dial, Locate, Opener};
    use crate::url::Login;

    /// A server that cannot be found, which is told when there is a permit to.
    #[derive(Debug)]
    struct Nowhere {
        asked: AtomicUsize,
        answers: Semaphore,
    }

    #[async_trait]
    impl Locate for Nowhere {
        async fn find(&self) -> Result<Address, Error> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.answers.acquire().await.unwrap().forget();
            Err(Error::new(ErrorKind::Unavailable, Phase::Connect, "nowhere"))
        }
    }

    #[tokio::test]
    async fn a_hurry_that_comes_during_an_attempt_cuts_the_next_pause_and_no_other() {
        let nowhere = Arc::new(Nowhere { asked: AtomicUsize::new(0), answers: Semaphore::new(0) });
        let opener = Opener::new(&Login::default(), 0, None, Duration::from_secs(2)).unwrap();
        let dial = Dial::at(Arc::new(opener), nowhere.clone(), "nowhere".to_owned());
        let (link, mut pace) = (Link::unconnected(Arc::new(dial), Arc::default()), Pace::of(Duration::from_secs(3600)));
        link.hurry();
        let mut redialling = pin!(redial(&link, &mut pace));
        assert!(redialling.as_mut().now_or_never().is_none());
        let attempts = || nowhere.asked.load(Ordering::Relaxed);
        assert_eq!(attempts(), 1);
        link.hurry();
        nowhere.answers.add_permits(1);
        assert!(redialling.as_mut().now_or_never().is_none());
        assert_eq!(attempts(), 2, "the hurry was forgotten");
        nowhere.answers.add_permits(1);
        assert!(redialling.as_mut().now_or_never().is_none());
        assert_eq!(attempts(), 2, "the hurry was obeyed twice");
        link.close();
        assert!(redialling.await.is_none());
    }

    #[test]
    fn the_farther_the_server_the_more_requests_are_on_their_way() {
        for (round_trip, most) in [(0, 1024), (20, 1024), (199, 1024), (200, 2048), (520, 5120), (60_000, 32_768)] {
            assert_eq!(on_their_way(Duration::from_millis(round_trip)), most, "{round_trip} ms");
        }
    }
}
