//! Giving items more time: all of them in one pipeline, and those that have changed meanwhile together once more.
//!
//! Each renewal is followed by a look at the time that is left. While a slow client reads an item, the server answers a
//! change of it with a new item, which does not get the new TTL (seen with 1.6.18), although the answer says so. A second
//! renewal is enough: nobody reads the new item.

use std::sync::Arc;

use lock_core::clock::{BootInstant, Clock, SystemClock};

use crate::client::cas::{CasNumber, OwnItem};
use crate::client::link::Link;
use crate::client::protocol::{Command, CommandAnswer, Item};
use crate::client::rights::Precedence;
use crate::epoch::GateVerdict;
use crate::epoch::gate::EpochGate;
use crate::error::Failure;
use crate::registry::{Entry, Piece};
use crate::store::keys::{Key, item_ttl};

/// Rounds for items that another request of this client has changed meanwhile.
const ROUNDS: usize = 3;

/// An item that is to live on.
#[derive(Debug)]
pub(crate) struct ItemRefresh {
    entry: Arc<Entry>,
    key: Key,
    /// The number by which it is known to be unchanged; `None` if it has changed.
    seen: Option<CasNumber>,
    /// The end that is asked for.
    until: BootInstant,
    /// Whether it lives on, once that is known.
    pub(crate) fate: Option<Result<bool, Failure>>,
}

impl ItemRefresh {
    pub(crate) fn new(entry: &Arc<Entry>, Piece { key, seen }: Piece, until: BootInstant) -> Self {
        Self { entry: entry.clone(), key, seen: Some(seen), until, fate: None }
    }

    /// Takes the answers to a renewal: what was done, and how long the item lives now.
    fn told(&mut self, renewed: CommandAnswer, look: &CommandAnswer, seconds: u32) {
        match renewed {
            CommandAnswer::Done(seen) => {
                self.entry.renewed(&self.key, seen);
                self.seen = Some(seen);
                match lasts(look, seconds) {
                    Ok(true) => self.fate = Some(Ok(true)),
                    Ok(false) => self.changed(),
                    Err(failure) => self.fate = Some(Err(failure)),
                }
            }
            CommandAnswer::Missing => self.fate = Some(Ok(false)),
            CommandAnswer::Failed(failure) => self.fate = Some(Err(failure)),
            // Another renewal was faster, or had been carried out without an answer; or it is another's.
            CommandAnswer::Other | CommandAnswer::Item(_) => {
                self.seen = None;
                self.changed();
            }
        }
    }

    /// Has the item tried again, unless it is being released.
    fn changed(&mut self) {
        if self.entry.is_ending() {
            self.fate = Some(Err(Failure::restless()));
        }
    }
}

/// Gives items more time.
pub(crate) struct Refresher {
    link: Arc<Link>,
    gate: Arc<EpochGate>,
}

impl Refresher {
    pub(crate) fn new(link: &Arc<Link>, gate: &Arc<EpochGate>) -> Self {
        Self { link: link.clone(), gate: gate.clone() }
    }

    /// Has items live on, and asks `beside` in the same pipeline. Each one's fate is known afterwards, after eleven round
    /// trips at most, however many there are; the verdict says whether it can be relied on.
    pub(crate) async fn refresh(&self, dues: &mut [ItemRefresh], beside: Vec<Command>) -> Result<GateVerdict, Failure> {
        let mut verdict = self.refresh_once(dues, beside).await;
        for _ in 0..ROUNDS {
            self.find_again(dues).await;
            if dues.iter().all(|due| due.fate.is_some()) {
                break;
            }
            let once_more = self.refresh_once(dues, Vec::new()).await;
            if matches!(verdict, Ok(GateVerdict::Counts(_))) {
                verdict = once_more;
            }
        }
        for due in dues {
            due.fate.get_or_insert_with(|| Err(Failure::restless()));
        }
        verdict
    }

    /// Renews every item whose fate is not known.
    async fn refresh_once(&self, dues: &mut [ItemRefresh], beside: Vec<Command>) -> Result<GateVerdict, Failure> {
        let sent_at = SystemClock.now();
        let mut commands = Vec::new();
        let mut asked = Vec::new();
        for due in dues.iter_mut().filter(|due| due.fate.is_none()) {
            let Some(seen) = due.seen else { continue };
            // It may be extended meanwhile: a renewal never asks for less than another one has.
            let seconds = item_ttl(due.entry.asks(due.until).since(sent_at));
            commands.extend(renewal(&due.key, due.entry.own(seen), seconds));
            asked.push((due, seconds));
        }
        let (answers, verdict) = self.gate.run(commands.into_iter().chain(beside), sent_at, Precedence::Renewal).await;
        let mut answers = answers.into_iter();
        for (due, seconds) in asked {
            // There are as many answers as commands.
            if let (Some(renewed), Some(look)) = (answers.next(), answers.next()) {
                due.told(renewed, &look, seconds);
            }
        }
        verdict
    }

    /// Looks for the items that have changed: those that are still their attempt's have new numbers.
    async fn find_again(&self, dues: &mut [ItemRefresh]) {
        let mut changed: Vec<_> = dues.iter_mut().filter(|due| due.fate.is_none() && due.seen.is_none()).collect();
        if changed.is_empty() {
            return;
        }
        let own = changed.iter().map(|due| (due.entry.nonce, &due.key));
        let found = self.link.find_own_of(own, self.link.deadline(), Precedence::Renewal).await;
        for (due, found) in changed.iter_mut().zip(found) {
            match found {
                Ok(Some(seen)) => due.seen = Some(seen),
                Ok(None) => due.fate = Some(Ok(false)),
                Err(failure) => due.fate = Some(Err(failure)),
            }
        }
    }
}

/// Renews an item, and looks how long it lives.
pub(crate) fn renewal(key: &Key, own: OwnItem, seconds: u32) -> [Command; 2] {
    [Command::Renew { key: key.clone(), own, seconds, is_strict: false }, Command::Look { key: key.clone() }]
}

/// Whether an item lives as long as it was told to. A second may have begun since.
pub(crate) fn lasts(look: &CommandAnswer, seconds: u32) -> Result<bool, Failure> {
    match look {
        CommandAnswer::Item(item) => Ok(item.left < 0 || item.left + 1 >= i64::from(seconds)),
        CommandAnswer::Failed(failure) => Err(failure.clone()),
        _ => Ok(false),
    }
}

/// Whether an item ends when it was told to, neither sooner nor later. A second may have begun since.
pub(crate) fn ends_after(look: &CommandAnswer, seconds: u32) -> Result<bool, Failure> {
    let in_time = |item: &Item| (0..=i64::from(seconds)).contains(&item.left);
    Ok(lasts(look, seconds)? && matches!(look, CommandAnswer::Item(item) if in_time(item)))
}
