//! Leaving: the item of a mutex becomes one of another number, which nobody of this client renews or releases, and ends by itself.

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{Attempt, Kind, Left, wait};
use lock_core::{Error, ErrorKind, GrantId, Phase};

use crate::client::cas::OwnItem;
use crate::client::link::Link;
use crate::client::protocol::{Command, CommandAnswer};
use crate::client::rights::Precedence;
use crate::config::LongestLease;
use crate::epoch::gate::EpochGate;
use crate::epoch::{GateVerdict, NotNow};
use crate::error::Failure;
use crate::items::reason::ForcedReasons;
use crate::items::record::HolderRecords;
use crate::items::refresh::ends_after;
use crate::registry::{Entry, Piece, Registry};
use crate::store::keys::{Nonce, item_ttl};

/// Rounds for an item that another request of this client has changed meanwhile, or that did not get its time.
const ROUNDS: usize = 20;
/// The longest pause, but for its jitter, before a look whether the server's clock runs by now.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Leaves mutexes.
pub(crate) struct Leaver {
    link: Arc<Link>,
    gate: Arc<EpochGate>,
    registry: Arc<Registry>,
    records: Arc<HolderRecords>,
    reasons: Arc<ForcedReasons>,
    longest: LongestLease,
}

impl Leaver {
    pub(crate) fn new(
        link: &Arc<Link>,
        gate: &Arc<EpochGate>,
        registry: &Arc<Registry>,
        records: &Arc<HolderRecords>,
        reasons: &Arc<ForcedReasons>,
        longest: LongestLease,
    ) -> Self {
        let (records, reasons) = (records.clone(), reasons.clone());
        Self { link: link.clone(), gate: gate.clone(), registry: registry.clone(), records, reasons, longest }
    }

    /// Has a mutex end after this time, under another id. No other kind can be left.
    pub(crate) async fn leave(&self, attempt: &Attempt, left: GrantId, time: Duration) -> Result<Left, Error> {
        if attempt.kind != Kind::Mutex {
            let what = "a lock of this kind cannot be left";
            return Err(attempt.error(ErrorKind::Unsupported, Phase::Release, what));
        }
        self.longest.check(attempt, time)?;
        let until = self.link.deadline();
        let Some(entry) = self.registry.get(attempt.id) else {
            return Ok(Left::NotHeld(self.reasons.read_by(Nonce::of(attempt.id), until).await));
        };
        let is_left = async {
            let is_left = self.leave_item(&entry, Nonce::of(left), item_ttl(time)).await;
            is_left.map_err(|failure| self.link.error(failure, Phase::Release))
        };
        let is_left = self.link.within(attempt, Phase::Release, is_left).await?;
        if is_left {
            self.records.left_soon(&entry, left, time);
        } else {
            self.records.forget_soon(&entry);
        }
        self.registry.close(attempt.id);
        if is_left {
            return Ok(Left::Done);
        }
        Ok(Left::NotHeld(self.reasons.read_by(entry.nonce, until).await))
    }

    /// Turns the item into one of this number; whether it was the attempt's, or had become that one before.
    async fn leave_item(&self, entry: &Entry, to: Nonce, seconds: u32) -> Result<bool, Failure> {
        // A renewal that fails from now on is not tried again.
        entry.end();
        let [Piece { key, seen }] = &*entry.pieces() else { return Ok(false) };
        let mut own = entry.own(*seen);
        let mut pauses = wait::pauses(NotNow::ClockStands.pause(), LONGEST_PAUSE);
        for _ in 0..ROUNDS {
            let change = Command::HandOver { key: key.clone(), own, to, seconds };
            let request = [change, Command::Look { key: key.clone() }].into_iter();
            let (answers, verdict) = self.gate.run(request, SystemClock.now(), Precedence::Usual).await;
            let mut answers = answers.into_iter();
            match answers.next() {
                Some(CommandAnswer::Done(seen)) => {
                    own = OwnItem { value: to.number(), seen };
                    let has_its_time =
                        answers.next().is_some_and(|look| matches!(ends_after(&look, seconds), Ok(true)));
                    match verdict? {
                        // An end by a clock that stood comes too early: the item gets another one when the clock runs, or is found to be
                        // lost. That the clock does not run is for the next round to tell.
                        GateVerdict::No(why @ NotNow::ClockStands) => {
                            drop(self.gate.tend(why).await);
                            // Another call of this client may be the one that looks at the clock: then there was nothing to wait for.
                            SystemClock
                                .sleep_until(SystemClock.now().plus(pauses.next().unwrap_or(LONGEST_PAUSE)))
                                .await;
                        }
                        _ if has_its_time => {
                            entry.lost(key);
                            return Ok(true);
                        }
                        _ => {}
                    }
                }
                Some(CommandAnswer::Failed(failure)) => return Err(failure),
                // It has changed: by a renewal, or an earlier request of this kind; or it is gone, or another's.
                _ => {
                    let found = self.link.run_one(Command::Read { key: key.clone() }).await.item()?;
                    let found = found.and_then(|item| Some((Nonce::read(&item.value)?, item.seen)));
                    let Some((nonce, seen)) = found.filter(|(nonce, _)| [entry.nonce, to].contains(nonce)) else {
                        entry.lost(key);
                        return Ok(false);
                    };
                    own = OwnItem { value: nonce.number(), seen };
                }
            }
        }
        Err(Failure::restless())
    }
}
