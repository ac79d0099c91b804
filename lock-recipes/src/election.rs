//! The election of a leader.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::driver::log;
use lock_core::{Error, ErrorKind, FencingToken, Phase, RecordedGuard, RecordedMutex};

use crate::announcement::Announcement;
use crate::leadership::Leadership;
use crate::release::after_release;
use crate::standing::Standing;
use crate::term::Term;
use crate::watch::LeadershipWatch;

/// The pause after a campaign that failed because no server answered, or after a term that ended at once.
const PAUSE: Duration = Duration::from_secs(1);

/// The election of a leader among processes: the one that holds the mutex of this name leads.
///
/// # What it promises
/// Never two that lead at one instant, as far as the backend promises exclusion: [`Term::is_leading`] is computed from the lease
/// and the clock, and turns false a margin before the lease can end. A term's number is the fencing token of its lock, which grows from
/// leader to leader: present it to resources, which then turn a former leader's late requests away.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// use lock_recipes::Election;
///
/// let election = Election::new(locks.recorded("scheduler")?).with_address("http://10.0.0.7:8080");
/// let done = election
///     .run(|term| async move {
///         assert!(term.is_leading()); // dropped in time when it leads no more; then it campaigns again
///         "all is scheduled"
///     })
///     .await?;
/// assert_eq!(done, "all is scheduled");
/// assert!(!election.is_leading() && election.leader().await?.is_none()); // it has stepped down
/// # Ok(()) }
/// ```
///
/// # Source
/// Leases and a small file with the leader's address: M. Burrows, "The Chubby lock service" (2006).
#[derive(Debug, Clone)]
pub struct Election {
    lock: RecordedMutex,
    address: String,
    margin: Option<Duration>,
    cool_down: Duration,
    standing: Arc<Standing>,
}

/// The present leader, as it has announced itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The number of its term.
    pub term: FencingToken,
    /// The address that it advertises.
    pub address: String,
}

impl Election {
    /// An election by the mutex of this name. Its TTL is the time after which another one can lead when the leader has crashed.
    ///
    /// # Examples
    /// ```
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    /// use lock_recipes::Election;
    ///
    /// let lock = locks.recorded("scheduler")?.with_ttl(Duration::from_secs(5));
    /// let election = Election::new(lock);
    /// assert!(!election.is_leading()); // it has not campaigned yet
    /// # Ok::<(), lock_core::Error>(())
    /// ```
    #[must_use]
    pub fn new(lock: RecordedMutex) -> Self {
        Self { lock, address: String::new(), margin: None, cool_down: Duration::ZERO, standing: Arc::default() }
    }

    /// Sets the address that this process advertises while it leads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_recipes::Election;
    ///
    /// let election = Election::new(locks.recorded("scheduler")?).with_address("http://10.0.0.7:8080");
    /// let leadership = election.campaign().await?;
    /// let leader = election.leader().await?.expect("this process leads");
    /// assert_eq!(leader.address, "http://10.0.0.7:8080");
    /// leadership.step_down().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_address(mut self, address: impl Into<String>) -> Self {
        self.address = address.into();
        self
    }

    /// Sets how long before its lease can end a leader stops leading: a tenth of the TTL by default, and at most a third of it, which a
    /// renewal in time leaves untouched. Where servers keep a lock for less than its TTL at a time, as ZooKeeper does with a shorter
    /// session, it is shorter in proportion. Give a client with a long margin a session of three of ZooKeeper's ticks or more: of a shorter one
    /// heartbeats may leave less than the margin, and a term ends although all is well.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    /// use lock_recipes::Election;
    ///
    /// let lock = locks.recorded("scheduler")?.with_ttl(Duration::from_secs(9));
    /// let election = Election::new(lock.clone()).with_margin(Duration::from_secs(2));
    /// election.campaign().await?.step_down().await?;
    /// let too_long = Election::new(lock).with_margin(Duration::from_secs(4));
    /// assert!(too_long.campaign().await.is_err()); // above a third of the TTL
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// Sets how long a leader that has stepped down, or lost its lock, waits before it campaigns again: not at all by default. It counts from
    /// the end of its [`Leadership`]: a clone of this election that waits already when the lock is lost may lead before that. Times above
    /// 365 days are cut to that. A campaign that waits ends with [`ErrorKind::Closed`] when the client is closed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    /// use lock_recipes::Election;
    ///
    /// let election = Election::new(locks.recorded("scheduler")?).with_cool_down(Duration::from_secs(60));
    /// election.campaign().await?.step_down().await?;
    /// let again = tokio::time::timeout(Duration::from_millis(10), election.campaign()).await;
    /// assert!(again.is_err()); // others have a minute to take over
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_cool_down(mut self, cool_down: Duration) -> Self {
        self.cool_down = cool_down;
        self
    }

    /// Waits until this process leads, and announces its address.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_recipes::Election;
    ///
    /// let election = Election::new(locks.recorded("scheduler")?);
    /// let leadership = election.campaign().await?; // waits until it leads
    /// assert!(leadership.is_leading());
    /// leadership.step_down().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`RecordedMutex::lock`] and [`RecordedGuard::write`](lock_core::RecordedGuard::write);
    /// [`ErrorKind::InvalidArgument`] for a margin above a third of the TTL, or an address that does not fit into a record;
    /// [`ErrorKind::Protocol`] if the record is of something else, such as a job of this name that runs once: it stays as it is.
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind. The record may be stamped, and may hold this
    /// process's address, of a term that is over. One that is kept without being polled (in a `select!` loop, say) may keep everybody from
    /// leading: for up to one TTL, on ZooKeeper for as long as its client lives.
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        let margin = self.checked_margin()?;
        let announcement = Announcement { address: self.address.clone() }.to_bytes(self.lock.name())?;
        let guard = self.cooled_lock().await?;
        // A record of something else is not this election's to overwrite.
        let found = guard.record();
        let foreign = if found.data.is_empty() { None } else { Announcement::of(found, self.lock.name()).err() };
        let announced = match foreign {
            Some(error) => Err(error),
            None => guard.while_polled(guard.write(&announcement)).await,
        };
        if let Err(error) = announced {
            // Not in the background: who campaigns again is not to meet its own lock.
            return Err(after_release(guard, error).await);
        }
        // A lock that was handed over is kept for a short time at first.
        let ttl = self.lock.lease().ttl;
        let mut kept = ttl;
        if guard.remaining() < ttl / 10 * 9 {
            let (clock, sent_at) = (self.lock.clock(), self.lock.clock().now());
            if let Err(error) = guard.while_polled(guard.extend(ttl)).await {
                return Err(after_release(guard, error).await);
            }
            // What the servers keep at a time may be less than the TTL: a session, say. It counts from the request, however late the
            // answer has come.
            kept = ttl.min(guard.remaining() + clock.now().since(sent_at));
        }
        let margin = margin.mul_f64(kept.as_secs_f64() / ttl.as_secs_f64());
        Ok(Leadership::new(guard, margin, self.cool_down, self.standing.clone()))
    }

    /// Campaigns, and runs `body` as the leader. When it leads no more, `body` is dropped at its next await point, before the lease can
    /// end, and it campaigns again, and calls `body` again. When `body` ends, it steps down, and its value is returned. Tasks that `body`
    /// has spawned are not stopped.
    ///
    /// A server that does not answer is no end: it campaigns again after a second.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_core::fence::FenceGate;
    /// use lock_recipes::Election;
    ///
    /// let election = Election::new(locks.recorded("scheduler")?);
    /// let gate = &FenceGate::new(); // of a resource that refuses who led before
    /// let written = election.run(|term| async move { gate.admit_exclusive(term.number()).is_ok() }).await?;
    /// assert!(written);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`campaign`](Election::campaign) that no repetition mends: a wrong argument, missing rights, a closed client, something
    /// else in the place of the lock or its record ([`ErrorKind::Protocol`]). Whoever gets one does not stand for election any more.
    ///
    /// # Cancel safety
    /// A dropped call drops `body`, and the lock is released in the background. One that is kept without being polled (in a `select!` loop, say)
    /// keeps the lock, and everybody else from leading, for as long as it is kept.
    pub async fn run<T, B, F>(&self, mut body: B) -> Result<T, Error>
    where
        B: FnMut(Term) -> F,
        F: Future<Output = T>,
    {
        loop {
            let leadership = match self.campaign().await {
                Ok(leadership) => leadership,
                Err(error) if may_pass(&error) => {
                    log(|| tracing::warn!(name = %self.lock.name(), %error, "a campaign failed; it goes on"));
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let began = Instant::now();
            let ran = tokio::select! {
                biased;
                // In a future, so that it is not called when the term is over by then.
                ran = while_leading(leadership.term(), async { body(leadership.term().clone()).await }) => ran,
                () = self.announce_again(&leadership) => None,
            };
            if let Err(error) = leadership.step_down().await {
                log(|| tracing::debug!(name = %self.lock.name(), %error, "the leader's lock was not released"));
            }
            if let Some(value) = ran {
                return Ok(value);
            }
            if began.elapsed() < PAUSE {
                // Leases that end at once would end again.
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Waits for the lock, outside of the queue while this process cools down, because a clone of this election has stepped down meanwhile. A
    /// lock that comes all the same is released.
    async fn cooled_lock(&self) -> Result<RecordedGuard, Error> {
        loop {
            if let Some(until) = self.standing.cools_until() {
                tokio::select! {
                    biased;
                    error = self.lock.closed() => return Err(error),
                    () = tokio::time::sleep_until(until) => {}
                }
            }
            // Thousands of clones would take the lock in turn before anybody else has it.
            let guard = tokio::select! {
                biased;
                () = self.standing.cools() => continue,
                guard = self.lock.lock() => guard?,
            };
            if !self.standing.is_cooling() {
                return Ok(guard);
            }
            // It ends with its lease if that fails, and was never led by.
            if let Err(error) = guard.release().await {
                log(
                    || tracing::debug!(name = %self.lock.name(), %error, "a lock that came while cooling down was not released"),
                );
            }
        }
    }

    /// Writes the address down again before its record can end: in each quarter of the retention. It never ends.
    async fn announce_again(&self, leadership: &Leadership) {
        loop {
            tokio::time::sleep(self.lock.retention() / 4).await;
            if let Err(error) = leadership.announce(&self.address).await {
                log(
                    || tracing::warn!(name = %self.lock.name(), %error, "the leader's address was not written down again"),
                );
            }
        }
    }

    /// Whether this process leads, through this election or a clone of it: an answer for a readiness probe. Computed at each call.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_recipes::Election;
    ///
    /// let election = Election::new(locks.recorded("scheduler")?);
    /// let leadership = election.campaign().await?;
    /// assert!(election.is_leading());
    /// leadership.step_down().await?;
    /// assert!(!election.is_leading());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.term().is_some()
    }

    /// Returns the number of the present term, if this process leads. Computed at each call.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_recipes::Election;
    ///
    /// let election = Election::new(locks.recorded("scheduler")?);
    /// assert_eq!(election.term(), None);
    /// let leadership = election.campaign().await?;
    /// assert_eq!(election.term(), Some(leadership.number()));
    /// leadership.step_down().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn term(&self) -> Option<FencingToken> {
        self.standing.term().map(|term| term.number())
    }

    /// Watches whether this process leads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_recipes::Election;
    ///
    /// let election = Election::new(locks.recorded("scheduler")?);
    /// let mut watch = election.watch();
    /// let leadership = election.campaign().await?;
    /// assert_eq!(watch.changed().await, Some(leadership.number())); // it leads
    /// leadership.step_down().await?;
    /// assert_eq!(watch.changed().await, None); // it leads no more
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn watch(&self) -> LeadershipWatch {
        LeadershipWatch::new(self.standing.clone())
    }

    /// Asks the servers who leads: the address of the holder of the lock, if it has announced itself in its present term.
    ///
    /// An address is kept for the [retention](RecordedMutex::with_retention) of its record, 30 days unless set otherwise.
    /// [`run`](Election::run) writes it down again before that is over; whoever leads by [`campaign`](Election::campaign) for longer
    /// [announces](Leadership::announce) it again.
    ///
    /// Each call asks for the holder of the lock and reads the record; both once more if it finds no leader. The first costs as much as
    /// [`Mutex::holder`](lock_core::Mutex::holder): on Redis the same however many candidates there are. For a question that comes often there is [`is_leading`](Election::is_leading), which asks no server.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_recipes::Election;
    ///
    /// let election = Election::new(locks.recorded("scheduler")?).with_address("http://10.0.0.7:8080");
    /// assert!(election.leader().await?.is_none());
    /// let leadership = election.campaign().await?;
    /// let leader = election.leader().await?.expect("this process leads");
    /// assert_eq!((leader.term, &*leader.address), (leadership.number(), "http://10.0.0.7:8080"));
    /// leadership.step_down().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`RecordedMutex::read`] and [`Mutex::holder`](lock_core::Mutex::holder);
    /// [`ErrorKind::Protocol`] if the record is not a leader's.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        // A hand-over may lie between the two questions: then the second look sees its end.
        match self.look_for_leader().await? {
            None => self.look_for_leader().await,
            found => Ok(found),
        }
    }

    async fn look_for_leader(&self) -> Result<Option<Leader>, Error> {
        // In this order: an address that was read first could be of a term before.
        let Some(holder) = self.lock.mutex().holder().await? else { return Ok(None) };
        let Some(record) = self.lock.read().await? else { return Ok(None) };
        if !record.is_of_term() || holder.token != Some(record.term.as_u64()) {
            return Ok(None);
        }
        let announcement = Announcement::of(&record, self.lock.name())?;
        Ok(Some(Leader { term: record.term, address: announcement.address }))
    }

    fn checked_margin(&self) -> Result<Duration, Error> {
        let ttl = self.lock.lease().ttl;
        let margin = self.margin.unwrap_or(ttl / 10);
        if margin > ttl / 3 {
            return Err(self.invalid(format!("the margin is {margin:?}, above a third of the TTL of {ttl:?}")));
        }
        Ok(margin)
    }

    fn invalid(&self, what: String) -> Error {
        Error::new(ErrorKind::InvalidArgument, Phase::Configure, what).with_name(self.lock.name())
    }
}

/// Runs `body` until it ends, or until it leads no more; the second is found out before each of its steps.
async fn while_leading<T>(term: &Term, body: impl Future<Output = T>) -> Option<T> {
    let mut body = pin!(body);
    let mut ended = pin!(term.ended());
    std::future::poll_fn(|cx| {
        use std::task::Poll;
        if ended.as_mut().poll(cx).is_ready() || !term.is_leading() {
            return Poll::Ready(None);
        }
        body.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Whether another campaign may succeed.
fn may_pass(error: &Error) -> bool {
    !matches!(
        error.kind(),
        ErrorKind::InvalidArgument
            | ErrorKind::Unsupported
            | ErrorKind::Denied
            | ErrorKind::Closed
            | ErrorKind::Protocol
    )
}
