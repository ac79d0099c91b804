//! The life of a link: its beginning, the giving up of its connections, its end, and what is to be known of it meanwhile.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use lock_core::Error;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::Doubts;
use tokio::sync::{Notify, watch};

use super::Link;
use super::batches::Batches;
use super::live::Live;
use super::predecessors::Predecessors;
use crate::client::dial::Dial;

/// The present connection, and when the last one was given up.
#[derive(Debug, Default)]
pub(super) struct Presence {
    pub(super) live: Option<Live>,
    pub(super) last_end: Option<BootInstant>,
    /// The number of the last connection there was.
    pub(super) newest: u64,
}

impl Link {
    /// Connects, and keeps connected until [`close`](Link::close).
    ///
    /// # Errors
    /// If the first connection cannot be made.
    pub(crate) async fn connect(dial: Arc<Dial>) -> Result<Arc<Self>, Error> {
        let link = Self::unconnected(dial, Arc::default());
        let first = link.dial_once().await?;
        link.keep_up(Some(first));
        Ok(link)
    }

    /// Begins to connect, as one of several links with common predecessors: for a server that may be down.
    pub(crate) fn begin(dial: Arc<Dial>, predecessors: Arc<Predecessors>) -> Arc<Self> {
        let link = Self::unconnected(dial, predecessors);
        link.keep_up(None);
        link
    }

    pub(super) fn unconnected(dial: Arc<Dial>, predecessors: Arc<Predecessors>) -> Arc<Self> {
        Arc::new(Self {
            op_timeout: dial.op_timeout(),
            dial,
            predecessors,
            presence: RwLock::default(),
            last_error: Mutex::default(),
            broken: Notify::new(),
            hurried: Notify::new(),
            closed: AtomicBool::new(false),
            callers: AtomicUsize::new(0),
            batches: Batches::new(),
        })
    }

    /// Changes with every new connection.
    pub(crate) fn generations(&self) -> watch::Receiver<u64> {
        self.predecessors.made()
    }

    /// The occasions on which the connection was replaced.
    pub(in crate::client) fn doubts(&self) -> Doubts {
        self.predecessors.doubts()
    }

    /// Whether nothing sent over connection `first` or a later one can still take effect, except over the present one. Without a present
    /// connection: whether there was none since `first`.
    pub(crate) fn is_settled(&self, first: u64) -> bool {
        let presence = self.presence.read().unwrap_or_else(PoisonError::into_inner);
        match &presence.live {
            Some(live) => live.generation == first || self.predecessors.none_in_flight(&live.server, first),
            None => presence.newest < first,
        }
    }

    /// Whether nothing sent over a connection that was up since `at` can still be carried out, except over the present one; false without
    /// one.
    pub(crate) fn is_settled_since(&self, at: BootInstant) -> bool {
        let presence = self.presence.read().unwrap_or_else(PoisonError::into_inner);
        presence.live.as_ref().is_some_and(|live| self.predecessors.none_in_flight_since(&live.server, at))
    }

    /// Whether a request that was sent over the present connection since then has its answer: so has whatever it carried before.
    pub(crate) fn has_answered_since(&self, at: BootInstant) -> bool {
        self.with_present(|live| live.pulse().has_answered_since(at))
    }

    /// Whether there is a connection now.
    pub(crate) fn is_up(&self) -> bool {
        self.presence.read().unwrap_or_else(PoisonError::into_inner).live.is_some()
    }

    /// The reason why there is no connection now, if there is none.
    pub(crate) fn outage(&self) -> Option<Error> {
        (!self.is_up()).then(|| self.down())
    }

    /// Whether there has been a connection at any time since then: if not, nothing was sent since then.
    pub(crate) fn was_up_since(&self, at: BootInstant) -> bool {
        let presence = self.presence.read().unwrap_or_else(PoisonError::into_inner);
        presence.live.is_some() || presence.last_end.is_some_and(|end| end >= at)
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// The last error of dialling, if none comes until `until`.
    pub(crate) async fn ready(&self, until: BootInstant) -> Result<(), Error> {
        self.live(until).await.map(|_| ())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends the supervisor and the connection.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.end();
        self.broken.notify_one();
        self.hurried.notify_one();
        // Whoever waits for a change finds it closed.
        self.predecessors.changed();
    }

    /// Gives up this connection, if it is still the present one: it is broken, or leads to a server that is not the one that
    /// is meant any more. Replies that are on their way still come.
    pub(crate) fn distrust(&self, generation: u64) {
        self.end_this(generation);
    }

    /// Gives up this connection at once, without the replies that it owes: its replies reach the wrong requests.
    pub(in crate::client) fn give_up(&self, live: &Live) {
        self.end_this(live.generation);
        live.commands.abort();
    }

    /// Gives up the present connection as [`give_up`](Self::give_up) does, if it is this one.
    pub(crate) fn give_up_present(&self, generation: u64) {
        if let Some(live) = self.end_this(generation) {
            live.commands.abort();
        }
    }

    fn end_this(&self, generation: u64) -> Option<Live> {
        let ended = {
            let mut presence = self.presence.write().unwrap_or_else(PoisonError::into_inner);
            presence.live.as_ref().filter(|live| live.generation == generation)?;
            presence.end()
        };
        self.broken.notify_one();
        ended
    }

    /// Cuts the pause between two attempts to connect short, or the next one if an attempt is under way: there is reason to hope.
    pub(in crate::client) fn hurry(&self) {
        self.hurried.notify_one();
    }

    pub(super) fn end(&self) {
        self.presence.write().unwrap_or_else(PoisonError::into_inner).end();
    }
}

impl Presence {
    /// Ends the present connection, if there is one.
    fn end(&mut self) -> Option<Live> {
        let live = self.live.take()?;
        self.last_end = Some(SystemClock.now());
        // Those that wait for their turn go on with the next connection.
        live.turns.close();
        Some(live)
    }
}
