//! The gate that keeps two holders apart when the server forgets its locks: reading the epoch with every claim,
//! putting it back when it is missing, and opening it when the former leases are over.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, ErrorKind, FencingToken, Phase};

use crate::client::cas::OwnItem;
use crate::client::link::{InUse, Link};
use crate::client::protocol::{Command, CommandAnswer, Item};
use crate::config::{MemcachedConfig, RestartPolicy};
use crate::epoch::server_clock::{ClockLook, ServerClock};
use crate::epoch::{self, Age, Epoch};
use crate::error::Failure;
use crate::locked::locked;
use crate::store::keys::Key;

/// Longest pause of a waiter while nothing is granted.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Longest time that a server's clock takes to tick, with its steps of two and a busy machine.
const LONGEST_TICK: Duration = Duration::from_millis(2_500);

/// Pause between two looks that are to show a tick.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The epoch, as this client uses it.
pub(crate) struct EpochGate {
    link: Arc<Link>,
    mode: RestartPolicy,
    longest: Duration,
    op_timeout: Duration,
    key: Key,
    clock: Mutex<ServerClock>,
    /// The closed epoch that was seen last, and since when.
    watched: Mutex<Option<(u64, BootInstant)>>,
    /// Held by the task that puts it back or opens it.
    tending: tokio::sync::Mutex<()>,
}

/// Verdict on a claim that was sent before the epoch was read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GateVerdict {
    /// It counts.
    Counts(Option<Epoch>),
    /// It does not, now.
    No(NotNow),
}

/// Reason for which nothing is granted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NotNow {
    /// The server has no epoch: it was restarted or flushed, or never had one.
    Missing,
    /// The epoch is closed, for about this long yet.
    Closed(Duration),
    /// The server's clock stands, has not caught up yet, or was not seen to tick yet.
    ClockStands,
}

impl EpochGate {
    pub(crate) fn new(config: &MemcachedConfig, key: Key, link: &Arc<Link>) -> Self {
        Self {
            link: link.clone(),
            mode: config.restart_policy,
            longest: config.longest_lease,
            op_timeout: config.client.op_timeout,
            key,
            clock: Mutex::default(),
            watched: Mutex::default(),
            tending: tokio::sync::Mutex::default(),
        }
    }

    /// Sends commands and a look at the epoch in one pipeline, and judges by that look, which is the last one.
    pub(crate) fn run(
        &self,
        commands: impl Iterator<Item = Command>,
        sent_at: BootInstant,
    ) -> impl Future<Output = (Vec<CommandAnswer>, Result<GateVerdict, Failure>)> + Send {
        let commands = commands.chain(self.look()).collect();
        async move {
            let mut answers = self.link.run(commands).await;
            let look = if self.mode == RestartPolicy::Off { None } else { answers.pop() };
            (answers, self.judge(look, sent_at))
        }
    }

    /// The command that follows a claim in the same pipeline; nothing if the policy is off.
    fn look(&self) -> Option<Command> {
        (self.mode != RestartPolicy::Off).then(|| Command::Read { key: self.key.clone() })
    }

    /// Judges by the answer to [`look`](EpochGate::look).
    fn judge(&self, answer: Option<CommandAnswer>, asked: BootInstant) -> Result<GateVerdict, Failure> {
        let Some(answer) = answer else { return Ok(GateVerdict::Counts(None)) };
        let Some(item) = answer.item()? else { return Ok(GateVerdict::No(NotNow::Missing)) };
        let epoch = self.epoch(&item)?;
        if !epoch.open {
            return Ok(GateVerdict::No(NotNow::Closed(self.closed_for(epoch, item.left))));
        }
        let look = ClockLook { epoch: epoch.id(), left: item.left, asked, answered: SystemClock.now() };
        let runs = locked(&self.clock).runs(look);
        Ok(if runs { GateVerdict::Counts(Some(epoch)) } else { GateVerdict::No(NotNow::ClockStands) })
    }

    /// Sees to it that there is an epoch, and measures the server's clock if it is open.
    ///
    /// Over a connection that was just opened nobody meets an old clock: the thread that accepts it is the one that ticks. So
    /// each look goes over one of its own.
    pub(crate) async fn begin(&self) -> Result<(), Error> {
        locked(&self.clock).is_met_anew(true);
        if let GateVerdict::No(why) = self.met().await? {
            self.tend(why).await?;
            // It may just have been opened.
            self.met().await?;
        }
        locked(&self.clock).is_met_anew(false);
        Ok(())
    }

    /// Looks at the epoch alone, over a connection that is opened for it.
    async fn met(&self) -> Result<GateVerdict, Error> {
        let Some(look) = self.look() else { return Ok(GateVerdict::Counts(None)) };
        let asked = SystemClock.now();
        let answer = async { Ok(self.link.newly_opened().await?.run_one(look).await) };
        let judged = answer.await.and_then(|answer| self.judge(Some(answer), asked));
        judged.map_err(|failure| self.link.error(failure, Phase::Connect))
    }

    /// Looks at the epoch alone.
    async fn asked(&self) -> Result<GateVerdict, Error> {
        let Some(look) = self.look() else { return Ok(GateVerdict::Counts(None)) };
        let asked = SystemClock.now();
        let judged = self.judge(Some(self.link.run_one(look).await), asked);
        judged.map_err(|failure| self.link.error(failure, Phase::Acquire))
    }

    /// Looks at the epoch until the server's clock is known to run, for as long as a tick may take, and half the operation
    /// timeout at most: the rest is for the request that asks for it.
    async fn until_it_ticks(&self) -> Result<(), Error> {
        let until = SystemClock.now().plus(LONGEST_TICK.min(self.op_timeout / 2));
        while SystemClock.now() < until && matches!(self.asked().await?, GateVerdict::No(NotNow::ClockStands)) {
            SystemClock.sleep_until(SystemClock.now().plus(BETWEEN_LOOKS)).await;
        }
        Ok(())
    }

    /// Does what can be done about a missing or closed epoch, or a clock that was not seen to run.
    pub(crate) async fn tend(&self, why: NotNow) -> Result<(), Error> {
        let early = self.mode == RestartPolicy::EndEarly;
        let due = match why {
            NotNow::Missing | NotNow::ClockStands => true,
            NotNow::Closed(left) => left.is_zero() || early,
        };
        let Ok(_tending) = self.tending.try_lock() else { return Ok(()) };
        if !due {
            return Ok(());
        }
        if matches!(why, NotNow::ClockStands) {
            return self.until_it_ticks().await;
        }
        let done = async {
            let mut connection = self.link.for_steps().await?;
            if let Some(item) = self.read(&mut connection).await? {
                return self.open(&mut connection, &item).await;
            }
            let epoch = Epoch::new(self.longest, since_1970());
            let claim = Command::Claim { key: self.key.clone(), value: epoch.value(), seconds: epoch::CLOSED_FOR };
            if let CommandAnswer::Failed(failure) = connection.run_one(claim).await {
                return Err(failure);
            }
            tracing::warn!(server = %self.link.address(), longest_lease = ?self.longest,
                "the server has no locks of before (it was restarted, flushed, or is new): none is granted for now");
            match self.read(&mut connection).await? {
                Some(item) => self.open(&mut connection, &item).await,
                None => Ok(()),
            }
        };
        done.await.map_err(|failure: Failure| self.link.error(failure, Phase::Acquire))
    }

    async fn read(&self, connection: &mut InUse<'_>) -> Result<Option<Item>, Failure> {
        connection.run_one(Command::Read { key: self.key.clone() }).await.item()
    }

    /// Opens a closed epoch, if it is time.
    async fn open(&self, connection: &mut InUse<'_>, item: &Item) -> Result<(), Failure> {
        let epoch = self.epoch(item)?;
        if epoch.open {
            return Ok(());
        }
        let is_over = self.closed_for(epoch, item.left).is_zero();
        if !is_over && (self.mode != RestartPolicy::EndEarly || !self.forgot_nothing(connection).await?) {
            return Ok(());
        }
        let ends_at = since_1970().saturating_add(epoch::OPEN_FOR).as_secs();
        let ends_at = u32::try_from(ends_at).unwrap_or(u32::MAX).min(i32::MAX.unsigned_abs());
        let own = OwnItem { value: epoch.value(), seen: item.seen };
        // If it has changed, somebody else was faster.
        match connection.run_one(Command::AddOne { key: self.key.clone(), own, ends_at }).await {
            CommandAnswer::Failed(failure) => Err(failure),
            _ => Ok(()),
        }
    }

    /// Whether the server has been up for so long, and lost nothing meanwhile, that every lease of before is over. Asked
    /// when the closed epoch is there: what is forgotten from then on takes the epoch with it.
    async fn forgot_nothing(&self, connection: &mut InUse<'_>) -> Result<bool, Failure> {
        let stats = connection.stats("").await?;
        let number = |name: &str| stats.get(name).and_then(|value| value.parse::<u64>().ok());
        let none = |name| number(name) == Some(0);
        let up_for = Duration::from_secs(number("uptime").unwrap_or_default());
        Ok(up_for > self.longest + Duration::from_secs(4)
            && ["cmd_flush", "evictions", "slabs_moved", "slab_reassign_running"].into_iter().all(none))
    }

    fn epoch(&self, item: &Item) -> Result<Epoch, Failure> {
        let epoch = Epoch::of(&item.value).ok_or_else(|| Failure::protocol("the epoch's key holds something else"))?;
        if epoch.admits(self.longest) {
            return Ok(epoch);
        }
        Err(Failure::disagreement(format!(
            "the clients of this prefix have agreed on a longest lease of {:?}, not {:?}",
            epoch.longest(),
            self.longest
        )))
    }

    fn closed_for(&self, epoch: Epoch, left: i64) -> Duration {
        let now = SystemClock.now();
        let mut watched = locked(&self.watched);
        let since = watched.filter(|(id, _)| *id == epoch.id()).map_or(now, |(_, since)| since);
        *watched = Some((epoch.id(), since));
        let age = i64::from(epoch::CLOSED_FOR).saturating_sub(left);
        epoch.closed_for(Age {
            watched: now.since(since),
            by_server: Duration::from_secs(u64::try_from(age).unwrap_or_default()),
            by_wall_clock: since_1970().saturating_sub(Duration::from_micros(epoch.id())),
        })
    }
}

impl NotNow {
    /// Pause before the next claim.
    pub(crate) fn pause(self) -> Duration {
        match self {
            Self::Closed(left) => left.clamp(Duration::from_millis(1), LONGEST_PAUSE),
            Self::Missing | Self::ClockStands => Duration::from_millis(10),
        }
    }

    pub(crate) fn into_error(self, phase: Phase) -> Error {
        let what = match self {
            Self::Missing => {
                "the server was restarted or flushed: former holders may believe in their locks".to_owned()
            }
            Self::Closed(left) => format!(
                "the server was restarted or flushed, or is new: former holders may believe in their locks for {left:?}"
            ),
            Self::ClockStands => {
                "the server's clock was not seen to run: it was paused a moment ago, or nobody has met it before"
                    .to_owned()
            }
        };
        Error::new(ErrorKind::Unavailable, phase, what)
    }
}

/// The fencing token of what was taken with this CAS number.
pub(crate) fn token(epoch: Option<Epoch>, cas: u64) -> Option<FencingToken> {
    epoch.and_then(|epoch| epoch.token(cas))
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
