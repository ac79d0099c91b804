//! The gate that keeps two holders apart when the server forgets its locks: reading the epoch with every claim,
//! putting it back when it is missing, and opening it when the former leases are over.
//!
//! The gate also looks at the server's setup when the epoch is new ([`health`](crate::client::health)).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::log;
use lock_core::{Error, FencingToken, Guarantees, Phase};

use crate::client::cas::OwnItem;
use crate::client::health::{ServerHealth, Stats};
use crate::client::link::{InUse, Link, Looks};
use crate::client::protocol::{Command, CommandAnswer, Item};
use crate::client::rights::{Precedence, Rights};
use crate::config::{MemcachedConfig, RestartPolicy};
use crate::epoch::{self, Epoch, EpochWatch, GateVerdict, NotNow};
use crate::error::Failure;
use crate::guarantees;
use crate::store::keys::{Key, since_1970};

/// Longest time that a server's clock takes to tick, with its steps of two and a busy machine.
const LONGEST_TICK: Duration = Duration::from_millis(2_500);

/// The most changes of an epoch by which it is opened and has its end.
const OPENING_ROUNDS: usize = 3;

/// Pause between two looks that are to show a tick.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The epoch, as this client uses it.
pub(crate) struct EpochGate {
    link: Arc<Link>,
    mode: RestartPolicy,
    longest: Duration,
    op_timeout: Duration,
    key: Key,
    /// The look at the epoch that counts as a use of it, and the one that does not.
    using: Command,
    peeking: Command,
    watch: Mutex<EpochWatch>,
    /// The epoch that was seen last.
    seen: AtomicU64,
    health: ServerHealth,
    /// Whether the server evicts items when its memory is full, as it was told last.
    evicts: AtomicBool,
    /// On a server that evicts nothing.
    promised: Guarantees,
    /// The epoch in which the server was asked how it is set up: when a client connects, and once in each epoch that is
    /// open. Another server, or the same one with other options, may be in its place.
    checked_in: AtomicU64,
    /// The one right to tend the epoch. Whoever opens it or puts it back has this right, until its time has passed at the latest.
    tending: Rights,
}

impl EpochGate {
    /// The gate of a client that connects: it looks at the epoch, and asks the server how it is set up. All of it ends by `until`.
    pub(crate) async fn connect(
        config: &MemcachedConfig,
        key: Key,
        link: &Arc<Link>,
        until: BootInstant,
    ) -> Result<Arc<Self>, Error> {
        let gate = Self {
            link: link.clone(),
            mode: config.restart_policy,
            longest: config.longest_lease,
            op_timeout: config.client.op_timeout,
            using: Command::Read { key: key.clone() },
            peeking: Command::Peek { key: key.clone() },
            key,
            watch: Mutex::default(),
            seen: AtomicU64::new(0),
            health: ServerHealth::new(link, config.refuse_eviction),
            evicts: AtomicBool::new(false),
            promised: config.guarantees(),
            checked_in: AtomicU64::new(0),
            tending: Rights::new(1),
        };
        // First of all: its look at the server's clock has to go over a connection that was just opened.
        gate.begin(until).await?;
        gate.check_server(until).await?;
        Ok(Arc::new(gate))
    }

    /// The promises on the server as it is set up.
    pub(crate) fn guarantees(&self) -> Guarantees {
        if self.evicts() { guarantees::evicting(self.promised) } else { self.promised }
    }

    fn evicts(&self) -> bool {
        self.evicts.load(Ordering::Relaxed)
    }

    /// Sends commands between two looks at the epoch in one pipeline, and judges by both.
    pub(crate) fn run(
        &self,
        commands: impl Iterator<Item = Command>,
        sent_at: BootInstant,
        precedence: Precedence,
    ) -> impl Future<Output = (Vec<CommandAnswer>, Result<GateVerdict, Failure>)> + Send {
        let (commands, until) = (commands.collect(), self.link.deadline());
        self.judged(self.link.run_by_itself(commands, self.look(), until, precedence), sent_at, until)
    }

    /// [`run`](EpochGate::run), together with what others ask for at the same moment, and by `until`.
    pub(crate) fn run_together(
        &self,
        commands: impl Iterator<Item = Command>,
        sent_at: BootInstant,
        until: BootInstant,
    ) -> impl Future<Output = (Vec<CommandAnswer>, Result<GateVerdict, Failure>)> + Send {
        self.judged(self.link.run_under_looks(commands.collect(), self.look(), until), sent_at, until)
    }

    async fn judged(
        &self,
        request: impl Future<Output = (Vec<CommandAnswer>, Looks)> + Send,
        sent_at: BootInstant,
        until: BootInstant,
    ) -> (Vec<CommandAnswer>, Result<GateVerdict, Failure>) {
        if self.watch().is_out_of_date(sent_at) {
            // Seldom, and so not a part of every request's future.
            Box::pin(self.measures_anew(sent_at, until)).await;
        }
        let (answers, looks) = request.await;
        let judged = match looks {
            Looks::None => Ok(GateVerdict::Counts(None)),
            Looks::Shared(both) => {
                // The one that was read first is judged by its own instant: both are told together, however far apart they are.
                let [first, last] = both.each_ref().map(|look| self.judge(&look.answer, sent_at, look.read_at, false));
                first.and_then(|first| Ok(GateVerdict::between(first, last?)))
            }
        };
        let judged = match judged {
            // The server has begun anew, and may be another one.
            Ok(GateVerdict::Counts(Some(epoch))) if !self.is_checked_in(epoch.id()) => {
                let fit = Box::pin(self.check_in(epoch.id(), until)).await;
                fit.map(|()| GateVerdict::Counts(Some(epoch)))
            }
            judged => judged,
        };
        (answers, judged)
    }

    /// Refuses a server that cannot carry locks, once the epoch was looked at.
    async fn check_server(&self, until: BootInstant) -> Result<(), Error> {
        let seen = self.seen.load(Ordering::Relaxed);
        let checked = async { self.health.check(self.link.for_steps(until).await?, &self.evicts).await };
        checked.await.map_err(|failure| self.link.error(failure, Phase::Connect))?;
        self.checked_in.store(seen, Ordering::Relaxed);
        Ok(())
    }

    fn is_checked_in(&self, epoch: u64) -> bool {
        self.checked_in.load(Ordering::Relaxed) == epoch
    }

    /// Refuses a server that cannot carry locks, unless that was done in this epoch; all is over by `until`.
    async fn check_in(&self, epoch: u64, until: BootInstant) -> Result<(), Failure> {
        let connection = self.link.for_steps(until).await?;
        // Nobody waits for another one to ask, who may never be driven again: as many ask as there are connections, at most.
        if !self.is_checked_in(epoch) {
            self.health.check(connection, &self.evicts).await?;
            self.checked_in.store(epoch, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The look at the epoch that goes with a claim; nothing if the policy is off. A server that evicts would evict what is not used.
    fn look(&self) -> Option<&Command> {
        (self.mode != RestartPolicy::Off).then(|| if self.evicts() { &self.using } else { &self.peeking })
    }

    /// Judges by the answer to [`look`](EpochGate::look), which was read at `answered`; `anew` says whether over a connection that was
    /// opened for it.
    fn judge(
        &self,
        answer: &CommandAnswer,
        asked: BootInstant,
        answered: BootInstant,
        anew: bool,
    ) -> Result<GateVerdict, Failure> {
        let Some(item) = answer.item_seen()? else { return Ok(GateVerdict::No(NotNow::Missing)) };
        let epoch = self.epoch(item)?;
        self.seen.store(epoch.id(), Ordering::Relaxed);
        let mut watch = self.watch();
        watch.set_met_anew(anew);
        Ok(watch.judges(epoch, item.left, asked, answered, since_1970))
    }

    fn watch(&self) -> MutexGuard<'_, EpochWatch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that there is an epoch, and measures the server's clock if it is open.
    ///
    /// A look over a newly opened connection never meets an old clock: the server's thread that accepts it also ticks the clock. So each
    /// look opens a connection of its own. All of them end by `until`.
    async fn begin(&self, until: BootInstant) -> Result<(), Error> {
        if let GateVerdict::No(why) = self.met(until).await? {
            // A look that took too long to be a measure is followed by another one over a connection of its own.
            if !matches!(why, NotNow::ClockStands) {
                self.tend_by(why, until).await?;
            }
            // It may just have been opened.
            self.met(until).await?;
        }
        Ok(())
    }

    /// Measures the server's clock after a long time without a look, for a request that counts as sent at `sent_at`: by a look over a new
    /// connection, so that no tick has to be waited for. One caller does so for all, and takes half of the operation timeout at most.
    async fn measures_anew(&self, sent_at: BootInstant, until: BootInstant) {
        let by = self.ticks_by().min(until);
        let Some(_tending) = self.tending.one(by, Precedence::Usual).await else { return };
        // Another one may have done so meanwhile.
        let is_out_of_date = self.watch().is_out_of_date(sent_at);
        if is_out_of_date && self.met(by).await.is_ok() {
            // It was no measure if the epoch is closed or gone: the request tells, and so it does of a failure.
            self.watch().forgets_what_is_old(sent_at);
        }
    }

    /// Looks at the epoch alone, over a connection that is opened for it.
    async fn met(&self, until: BootInstant) -> Result<GateVerdict, Error> {
        let Some(look) = self.look().cloned() else { return Ok(GateVerdict::Counts(None)) };
        let asked = SystemClock.now();
        let answer = async { Ok(self.link.newly_opened(until).await?.run_one(look).await) };
        let judged = answer.await.and_then(|answer| self.judge(&answer, asked, SystemClock.now(), true));
        judged.map_err(|failure| self.link.error(failure, Phase::Connect))
    }

    /// Looks at the epoch alone.
    async fn asked(&self) -> Result<GateVerdict, Error> {
        let Some(look) = self.look().cloned() else { return Ok(GateVerdict::Counts(None)) };
        let asked = SystemClock.now();
        let judged = self.judge(&self.link.run_one(look).await, asked, SystemClock.now(), false);
        judged.map_err(|failure| self.link.error(failure, Phase::Acquire))
    }

    /// The instant by which the server's clock ticks, and after half the operation timeout at most: the rest is for the
    /// request that asks for it.
    fn ticks_by(&self) -> BootInstant {
        SystemClock.now().plus(LONGEST_TICK.min(self.op_timeout / 2))
    }

    /// Looks at the epoch until the server's clock is known to run. The last look may begin just before `until`.
    async fn until_it_ticks(&self, until: BootInstant) -> Result<(), Error> {
        while SystemClock.now() < until && matches!(self.asked().await?, GateVerdict::No(NotNow::ClockStands)) {
            SystemClock.sleep_until(SystemClock.now().plus(BETWEEN_LOOKS)).await;
        }
        Ok(())
    }

    /// Does what can be done about a missing or closed epoch, or a clock that was not seen to run.
    pub(crate) fn tend(&self, why: NotNow) -> impl Future<Output = Result<(), Error>> + Send {
        self.tend_by(why, self.link.deadline())
    }

    async fn tend_by(&self, why: NotNow, until: BootInstant) -> Result<(), Error> {
        if !why.can_be_tended(self.mode == RestartPolicy::EndEarly) {
            return Ok(());
        }
        let ticks = matches!(why, NotNow::ClockStands).then(|| self.ticks_by());
        let ends = ticks.map_or(until, |ticks| ticks.plus(self.op_timeout));
        let Some(_tending) = self.tending.at_once(ends) else { return Ok(()) };
        if let Some(ticks) = ticks {
            return self.until_it_ticks(ticks).await;
        }
        let done = async {
            let mut connection = self.link.for_steps(until).await?;
            if let Some(item) = self.read(&mut connection).await? {
                return self.open(&mut connection, &item).await;
            }
            let epoch = Epoch::new(self.longest, since_1970());
            let claim = Command::Claim { key: self.key.clone(), value: epoch.value(), seconds: epoch::CLOSED_FOR };
            if let CommandAnswer::Failed(failure) = connection.run_one(claim).await {
                return Err(failure);
            }
            let what =
                "the server has no locks of before (it was restarted, flushed, or is new): none is granted for now";
            log(|| tracing::warn!(server = %self.link.address(), longest_lease = ?self.longest, "{what}"));
            match self.read(&mut connection).await? {
                Some(item) => self.open(&mut connection, &item).await,
                None => Ok(()),
            }
        };
        done.await.map_err(|failure: Failure| self.link.error(failure, Phase::Acquire))
    }

    async fn read(&self, connection: &mut InUse<'_>) -> Result<Option<Item>, Failure> {
        connection.run_one(self.peeking.clone()).await.item()
    }

    /// Opens a closed epoch, if it is time.
    async fn open(&self, connection: &mut InUse<'_>, item: &Item) -> Result<(), Failure> {
        let epoch = self.epoch(item)?;
        if epoch.open {
            return Ok(());
        }
        let is_over = self.watch().closed_for(epoch, item.left, SystemClock.now(), since_1970()).is_zero();
        if !is_over && self.mode != RestartPolicy::EndEarly {
            return Ok(());
        }
        let stats = connection.stats("").await?;
        if !is_over && !self.forgot_nothing(&stats) {
            return Ok(());
        }
        let ends_at = opened_ends_at(&stats)?;
        let key = || self.key.clone();
        let (mut own, to) = (OwnItem { value: epoch.value(), seen: item.seen }, epoch.opened().value());
        let mut change = Command::Open { key: key(), own, to, ends_at };
        for _ in 0..OPENING_ROUNDS {
            let mut answers = connection.run(vec![change, Command::Look { key: key() }]).await.into_iter();
            own.seen = match CommandAnswer::expected(answers.next()) {
                CommandAnswer::Done(seen) => seen,
                CommandAnswer::Failed(failure) => return Err(failure),
                // Somebody else was faster.
                _ => return Ok(()),
            };
            own.value = to;
            // While somebody reads the item, the server changes a copy of it, which keeps the former end.
            match CommandAnswer::expected(answers.next()).item_seen()? {
                Some(item) if item.left <= i64::from(epoch::CLOSED_FOR) => {}
                _ => return Ok(()),
            }
            change = Command::Renew { key: key(), own, seconds: ends_at, is_strict: true };
        }
        Ok(())
    }

    /// Whether the server has been up for so long, and lost nothing meanwhile, that every earlier lease is over. Asked once the closed
    /// epoch is there: what is forgotten from then on takes the epoch with it. A server that took another one's place may have been up all
    /// the time, and says nothing of the leases there.
    fn forgot_nothing(&self, stats: &Stats) -> bool {
        if self.link.has_moved() {
            return false;
        }
        let number = |name: &str| stats.get(name).and_then(|value| value.parse::<u64>().ok());
        let none = |name| number(name) == Some(0);
        let up_for = Duration::from_secs(number("uptime").unwrap_or_default());
        up_for > self.longest + Duration::from_secs(4)
            && ["cmd_flush", "evictions", "slabs_moved", "slab_reassign_running"].into_iter().all(none)
    }

    fn epoch(&self, item: &Item) -> Result<Epoch, Failure> {
        let epoch = Epoch::of(&item.value, item.seen.cas);
        let epoch = epoch.ok_or_else(|| Failure::protocol("the epoch's key holds something else"))?;
        if epoch.admits(self.longest) {
            return Ok(epoch);
        }
        Err(Failure::disagreement(format!(
            "the clients of this prefix have agreed on a longest lease of {:?}, not {:?}",
            epoch.longest(),
            self.longest
        )))
    }
}

/// The second at which an open epoch ends, by the server's own clock: by another one that is years behind it, the epoch would be over when it
/// is opened.
fn opened_ends_at(stats: &Stats) -> Result<u32, Failure> {
    let time: u64 = stats.get("time").and_then(|time| time.parse().ok()).ok_or_else(Failure::senseless)?;
    Ok(u32::try_from(time.saturating_add(epoch::OPEN_FOR.as_secs())).unwrap_or(u32::MAX).min(i32::MAX.unsigned_abs()))
}

/// The fencing token of what was taken with this CAS number.
pub(crate) fn token(epoch: Option<Epoch>, cas: u64) -> Option<FencingToken> {
    epoch.and_then(|epoch| epoch.token(cas))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::cas::CasNumber;
    use crate::client::link::LookAnswer;
    use crate::network::SystemNetwork;

    const LONGEST: Duration = Duration::from_secs(30);

    /// The gate of a client that has seen nothing of this open epoch but how its server is set up. Nobody is connected to.
    fn gate(open: Epoch) -> EpochGate {
        let config = MemcachedConfig::new("memcached://127.0.0.1:1");
        let address = crate::url::parse("memcached://127.0.0.1:1").unwrap();
        let link = Arc::new(Link::new(address, 1, Duration::from_secs(60), Arc::new(SystemNetwork)));
        EpochGate {
            mode: RestartPolicy::Quarantine,
            longest: LONGEST,
            op_timeout: Duration::from_secs(1),
            key: crate::store::keys::writer("a"),
            using: Command::Read { key: crate::store::keys::writer("a") },
            peeking: Command::Peek { key: crate::store::keys::writer("a") },
            watch: Mutex::default(),
            seen: AtomicU64::new(0),
            health: ServerHealth::new(&link, false),
            evicts: AtomicBool::new(false),
            promised: config.guarantees(),
            checked_in: AtomicU64::new(open.id()),
            tending: Rights::new(1),
            link,
        }
    }

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_secs(seconds))
    }

    /// The verdict on what went between looks that were read at these seconds, with what was left of the epoch at each.
    async fn verdict(gate: &EpochGate, open: Epoch, looks: [(u64, i64); 2]) -> GateVerdict {
        let both = looks.map(|(second, left)| {
            let item = Item { value: open.value().to_string().into_bytes(), seen: CasNumber::of_a_test(1), left };
            LookAnswer { answer: CommandAnswer::Item(item), read_at: at(second) }
        });
        let answered = async { (Vec::new(), Looks::Shared(Arc::new(both))) };
        gate.judged(answered, at(looks[0].0), gate.link.deadline()).await.1.unwrap()
    }

    #[test]
    fn an_open_epoch_ends_years_after_the_server_s_own_time() {
        let told = |time: &str| Stats::from([("time".to_owned(), time.to_owned())]);
        let (year_2000, year_2037) = (946_684_800, 2_114_380_800_u64);
        let years = u32::try_from(epoch::OPEN_FOR.as_secs()).unwrap();
        assert_eq!(opened_ends_at(&told(&year_2000.to_string())).unwrap(), year_2000 + years);
        assert_eq!(opened_ends_at(&told(&year_2037.to_string())).unwrap(), i32::MAX.unsigned_abs());
        for unknown in [Stats::new(), told("noon"), told("-1")] {
            assert!(opened_ends_at(&unknown).is_err(), "{unknown:?}");
        }
    }

    /// The server stood between the looks of a batch, and after them: it has ticked once.
    #[tokio::test]
    async fn looks_of_a_batch_that_were_read_far_apart_show_no_tick() {
        let open = Epoch { open: true, ..Epoch::new(LONGEST, since_1970()) };
        let gate = gate(open);
        let front_and_last = [(100, 1_000_000), (103, 999_999)];
        for _each_of_its_requests in 0..3 {
            let judged = verdict(&gate, open, front_and_last).await;
            assert!(matches!(judged, GateVerdict::No(NotNow::ClockStands)), "{judged:?}");
        }
        let later = verdict(&gate, open, [(111, 999_999), (111, 999_999)]).await;
        assert!(matches!(later, GateVerdict::No(NotNow::ClockStands)), "{later:?}");
        assert!(
            gate.watch().judges(open, 999_991, at(112), at(112), since_1970).counts().is_some(),
            "it has caught up"
        );
    }
}
