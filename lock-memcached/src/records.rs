//! The records beside mutexes: an item each, changed only as long as it is as it was read.
//!
//! The server cannot look at the lock and change another item in one step. So it is the token in the record that turns a late
//! holder away: the next one stamps the record before it is told of its grant, and a change counts only if the item's CAS number is
//! the one under which an older token was read, over one connection.
//!
//! A holder of the mutex alone does not stamp the record. So the lock's own item is read with the record, and a change is asked for only
//! if it has the attempt's number. That leaves a change that was asked for already when the lock passes to such a holder.

use std::sync::Arc;
use std::time::Duration;

use lock_core::driver::{Attempt, Kind, Record, RecordWrite};
use lock_core::{Error, FencingToken, LockName, Phase};

use crate::client::link::{InUse, Link};
use crate::client::protocol::{Command, CommandAnswer, Item};
use crate::error::Failure;
use crate::store::keys::{Keys, Nonce};

/// Rounds of reading and changing, when others change the record at the same time.
const ROUNDS: usize = 5;

/// The records of one client.
pub(crate) struct Records {
    link: Arc<Link>,
    keys: Arc<Keys>,
}

impl Records {
    pub(crate) fn new(link: &Arc<Link>, keys: &Arc<Keys>) -> Self {
        Self { link: link.clone(), keys: keys.clone() }
    }

    pub(crate) async fn read(&self, name: &LockName) -> Result<Option<Record>, Error> {
        let read = async {
            let item = self.link.run_one(Command::Read { key: self.keys.record(name) }).await.item()?;
            item.as_ref().map(record_in).transpose()
        };
        self.link.in_time(async { read.await.map_err(|failure| self.link.error(failure, Phase::Inspect)) }).await
    }

    pub(crate) async fn write(
        &self,
        attempt: &Attempt,
        token: FencingToken,
        data: Option<&[u8]>,
        retention: Duration,
    ) -> Result<RecordWrite, Error> {
        let written = async {
            let mut connection = self
                .link
                .for_steps(self.link.deadline())
                .await
                .map_err(|failure| self.link.error(failure, Phase::Hold))?;
            self.write_over(&mut connection, attempt, token, data, retention).await
        };
        self.link.within(attempt, Phase::Hold, written).await
    }

    async fn write_over(
        &self,
        connection: &mut InUse<'_>,
        attempt: &Attempt,
        token: FencingToken,
        data: Option<&[u8]>,
        retention: Duration,
    ) -> Result<RecordWrite, Error> {
        let error = |failure| self.link.error(failure, Phase::Hold);
        let (key, lock) = (self.keys.record(&attempt.name), self.keys.lock(&attempt.name, Kind::Mutex)?);
        for _ in 0..ROUNDS {
            // The lock last: as late as can be.
            let reads = [&key, &lock].map(|key| Command::Read { key: key.clone() });
            let mut answers = connection.run(reads.into()).await.into_iter();
            let mut read = || CommandAnswer::expected(answers.next()).item();
            let (item, holder) = (read().map_err(error)?, read().map_err(error)?);
            if !holder.is_some_and(|item| Nonce::read(&item.value) == Some(Nonce::of(attempt.id))) {
                return Ok(RecordWrite::NotHeld);
            }
            let stored = item.as_ref().map(record_in).transpose().map_err(error)?;
            let Ok(next) = Record::next(stored, token, data) else { return Ok(RecordWrite::NotHeld) };
            let command = Command::Store {
                key: key.clone(),
                bytes: next.to_bytes(),
                seen: item.as_ref().map(|item| item.seen.cas),
                seconds: seconds(retention, item.as_ref()),
            };
            match connection.run_one(command).await {
                CommandAnswer::Done(_) => return Ok(RecordWrite::Done(next)),
                CommandAnswer::Failed(failure) => return Err(error(failure)),
                // Somebody has changed it meanwhile, or it has just ended: it may be this client's own write, of before.
                _ => {}
            }
        }
        let what = "others change the record all the time";
        Err(error(Failure::busy(what)).with_name(&attempt.name))
    }
}

/// The whole seconds for which the record is to be kept: never fewer than it has already.
fn seconds(retention: Duration, item: Option<&Item>) -> u32 {
    let whole = retention.as_secs().saturating_add(u64::from(retention.subsec_nanos() > 0));
    let asked = u32::try_from(whole).unwrap_or(u32::MAX);
    let left = item.and_then(|item| u32::try_from(item.left).ok()).unwrap_or_default();
    // More than that would be an instant since 1970.
    asked.max(left).min(u32::try_from(Record::LONGEST_RETENTION.as_secs()).unwrap_or(u32::MAX))
}

pub(crate) fn record_in(item: &Item) -> Result<Record, Failure> {
    Record::from_bytes(&item.value).ok_or_else(|| Failure::foreign("something else is in the record's place"))
}
