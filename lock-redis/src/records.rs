//! The records beside mutexes: `<lock>:r`, written by one script that looks who holds the lock.
//!
//! Writes of one holder are ordered on one connection only. One that was not answered may still be carried out over an earlier connection
//! where the user lacks the right to kill that, and would bring the record back to what it was before a later write. So the later one waits
//! until the earlier one has been carried out or never will be, and is refused if it cannot tell.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::clock::BootInstant;
use lock_core::driver::{Attempt, Kind, Record, RecordWrite};
use lock_core::{Error, ErrorKind, FencingToken, GrantId, LockName, Phase};

use crate::client::link::request::{Reply, Request, milliseconds};
use crate::client::links::{Links, SentBefore};
use crate::confirm::Confirmation;
use crate::error::RequestFate;
use crate::store::keys::KeySpace;
use crate::store::reply::Fields;
use crate::store::scripts;

/// The records of one client.
#[derive(Debug)]
pub(crate) struct Records {
    links: Arc<Links>,
    keys: Arc<KeySpace>,
    /// The check that replicas have what was written, if that is wanted.
    confirmation: Option<Arc<Confirmation>>,
    unanswered: UnansweredWrites,
}

/// The grants that have writes without an answer, and the earliest connections over which these may still be carried out.
#[derive(Debug, Default)]
struct UnansweredWrites(Mutex<EarliestWrites>);

#[derive(Debug, Default)]
struct EarliestWrites {
    /// At most [`MOST`], each until a later write is answered or the grant has ended.
    by_grant: HashMap<GrantId, u64>,
    /// The earliest of those that there was no room for: it counts for every grant from then on.
    of_others: Option<u64>,
}

/// The most grants of which unanswered writes are remembered one by one.
const MOST: usize = 1024;

/// The refusal of a write that would perhaps be undone by an earlier one.
const NOT_SETTLED: &str = "an earlier write of the record was not answered, and may still be carried out";

/// A write on its way. Dropped without an answer, it is remembered.
struct WriteUnderWay<'a> {
    unanswered: &'a UnansweredWrites,
    grant: GrantId,
    /// The number of the first connection over which it was sent; `u64::MAX` before.
    sent: AtomicU64,
}

impl Records {
    /// The records over these links.
    pub(crate) fn new(links: &Arc<Links>, keys: &Arc<KeySpace>, confirmation: Option<Arc<Confirmation>>) -> Self {
        let (links, keys) = (links.clone(), keys.clone());
        Self { links, keys, confirmation, unanswered: UnansweredWrites::default() }
    }

    pub(crate) async fn read(&self, name: &LockName) -> Result<Option<Record>, Error> {
        let keys = self.keys.checked(name, Kind::Mutex)?;
        let record = keys.to_read_record();
        let args = [record[0].as_bytes()];
        let request = Request::new(&scripts::READ_RECORD, &record, &args);
        let reply = self.links.run(request, Phase::Inspect, self.links.until(), |_| {});
        let reply = reply.await.map_err(|failed| failed.error)?;
        let mut fields = self.links.fields(reply.value, &record[0], Phase::Inspect)?;
        if fields.is_empty() { Ok(None) } else { self.record(&mut fields, name, Phase::Inspect).map(Some) }
    }

    pub(crate) async fn write(
        &self,
        attempt: &Attempt,
        token: FencingToken,
        data: Option<&[u8]>,
        retention: Duration,
    ) -> Result<RecordWrite, Error> {
        let keys = self.keys.of(&attempt.name, attempt.kind);
        let (nonce, token) = (attempt.id.to_string(), format!("{token:016}"));
        let (retention, has_data) = (milliseconds(retention), if data.is_some() { "1" } else { "" });
        let args =
            [nonce.as_bytes(), token.as_bytes(), retention.as_bytes(), has_data.as_bytes(), data.unwrap_or_default()];
        let (to_write, until) = (keys.to_write_record(), self.links.until());
        let request = Request::new(&scripts::RECORD, &to_write, &args);
        let asked = if data.is_some() {
            Box::pin(self.run_in_order(attempt, request, until)).await
        } else {
            // A stamp changes no data, however late it comes.
            self.links.run_for(attempt, request, Phase::Hold, until).await
        };
        let (reply, before) = asked?;
        let mut fields = self.links.fields(reply.value, &nonce, Phase::Hold)?;
        if fields.number()? == 0 {
            if before.0 {
                // Either an earlier sending of this request has written it, and the grant has ended since, or it had ended before.
                let what =
                    "the grant is gone; whether the record was written is unknown, as the first answer never came";
                let unknown = attempt.error(ErrorKind::Indeterminate, Phase::Hold, what);
                return Err(unknown.with_server(self.links.server()));
            }
            return Ok(RecordWrite::NotHeld);
        }
        let record = self.record(&mut fields, &attempt.name, Phase::Hold)?;
        if let Some(confirmation) = &self.confirmation {
            confirmation.is_kept(attempt, until).await?;
        }
        Ok(RecordWrite::Done(record))
    }

    /// Runs a write behind all earlier ones of its grant.
    async fn run_in_order(
        &self,
        attempt: &Attempt,
        request: Request<'_>,
        until: BootInstant,
    ) -> Result<(Reply, SentBefore), Error> {
        let earlier = self.unanswered.earliest(attempt.id);
        let is_settled = |first| self.links.is_settled(first, || request.keys[0].to_string());
        let refused = |kind| attempt.error(kind, Phase::Hold, NOT_SETTLED).with_server(self.links.server());
        if let Some(first) = earlier {
            self.links.ready(&request.keys[0], until).await?;
            if !is_settled(first) {
                return Err(refused(ErrorKind::Unavailable));
            }
        }
        self.links.note_lease(attempt.ttl);
        let mut write =
            WriteUnderWay { unanswered: &self.unanswered, grant: attempt.id, sent: AtomicU64::new(u64::MAX) };
        let sent = |generation| {
            attempt.mark_sent(generation);
            write.sent.fetch_min(generation, Ordering::Relaxed);
        };
        let outcome = match self.links.run(request, Phase::Hold, until, sent).await {
            Ok(reply) => Ok((reply, SentBefore::NEVER)),
            Err(failed) => {
                let is_unknown = failed.fate == RequestFate::Unknown;
                let again = self.links.run_for_after(Some(failed), attempt, request, Phase::Hold, until).await;
                if again.is_err() && is_unknown {
                    // It is remembered.
                    return again;
                }
                again
            }
        };
        write.is_answered();
        let (Some(first), Ok((reply, _))) = (earlier, &outcome) else { return outcome };
        // Another connection may have taken the place of the one that was settled.
        if reply.value.generation != first && !is_settled(first) {
            return Err(refused(ErrorKind::Indeterminate));
        }
        self.unanswered.forget(attempt.id);
        outcome
    }

    /// Forgets the unanswered writes of a grant that writes no more.
    pub(crate) fn forget(&self, grant: GrantId) {
        self.unanswered.forget(grant);
    }

    fn record(&self, fields: &mut Fields, name: &LockName, phase: Phase) -> Result<Record, Error> {
        Record::from_bytes(&fields.bytes()?).ok_or_else(|| {
            let what = "something else is in the record's place";
            Error::new(ErrorKind::Protocol, phase, what).with_name(name).with_server(self.links.server())
        })
    }
}

impl UnansweredWrites {
    /// The earliest connection over which a write of this grant may still be carried out.
    fn earliest(&self, grant: GrantId) -> Option<u64> {
        let writes = self.writes();
        writes.by_grant.get(&grant).copied().into_iter().chain(writes.of_others).min()
    }

    fn note(&self, grant: GrantId, generation: u64) {
        let mut writes = self.writes();
        if writes.by_grant.len() >= MOST && !writes.by_grant.contains_key(&grant) {
            let earliest = writes.of_others.map_or(generation, |others| others.min(generation));
            writes.of_others = Some(earliest);
            return;
        }
        let noted = writes.by_grant.entry(grant).or_insert(generation);
        *noted = generation.min(*noted);
    }

    fn forget(&self, grant: GrantId) {
        self.writes().by_grant.remove(&grant);
    }

    fn writes(&self) -> MutexGuard<'_, EarliestWrites> {
        // Every critical section leaves them whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriteUnderWay<'_> {
    /// Takes note that it was answered, or never sent.
    fn is_answered(&mut self) {
        *self.sent.get_mut() = u64::MAX;
    }
}

impl Drop for WriteUnderWay<'_> {
    fn drop(&mut self) {
        let sent = *self.sent.get_mut();
        if sent != u64::MAX {
            self.unanswered.note(self.grant, sent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unanswered_write_is_remembered_from_its_first_connection_on_until_its_grant_ends() {
        let (writes, [grant, other]) = (UnansweredWrites::default(), [1, 2].map(|id| GrantId::from_bytes([id; 16])));
        let write = || WriteUnderWay { unanswered: &writes, grant, sent: AtomicU64::new(u64::MAX) };
        drop(write());
        assert_eq!(writes.earliest(grant), None, "it was not sent");
        for sent in [8, 7, 9] {
            write().sent.fetch_min(sent, Ordering::Relaxed);
        }
        assert_eq!((writes.earliest(grant), writes.earliest(other)), (Some(7), None));
        let mut answered = write();
        answered.sent.fetch_min(6, Ordering::Relaxed);
        answered.is_answered();
        drop(answered);
        assert_eq!(writes.earliest(grant), Some(7));
        writes.forget(grant);
        assert_eq!(writes.earliest(grant), None);
    }

    #[test]
    fn unanswered_writes_beyond_the_bound_count_for_every_grant() {
        let writes = UnansweredWrites::default();
        let grants: Vec<_> = (0..MOST + 2).map(|_| GrantId::random().unwrap()).collect();
        grants.iter().zip(1..).for_each(|(grant, generation)| writes.note(*grant, generation));
        assert_eq!(writes.writes().by_grant.len(), MOST);
        let beyond = MOST as u64 + 1;
        assert_eq!(writes.earliest(grants[MOST]), Some(beyond));
        assert_eq!(writes.earliest(grants[MOST + 1]), Some(beyond), "the earliest of them");
        assert_eq!(writes.earliest(grants[0]), Some(1));
    }
}
