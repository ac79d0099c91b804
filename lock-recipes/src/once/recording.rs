//! The recording of what a job has come to: each write goes on for as long as it may have failed and the lock is held.

use std::time::Duration;

use lock_core::driver::log;
use lock_core::{Error, ErrorKind, Record, RecordedGuard};

use super::Once;
use crate::progress::Progress;
use crate::release::{release, unknown};

/// The pauses before a record is written again that may not have been written.
const PAUSES: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(200), Duration::from_secs(1)];

/// The pause before each further try, where there are more.
const LONG_PAUSE: Duration = Duration::from_secs(1);

/// Tells of a write that failed at last, after a try of which no answer came.
const MAY_BE_WRITTEN: &str = "the last write failed, and an earlier one without an answer may have succeeded";

impl Once {
    /// Writes the record, again if that is unknown or no server could be asked, as long as the lock is held and a few times.
    pub(super) async fn write(&self, guard: &RecordedGuard, data: &[u8]) -> Result<(), Error> {
        self.write_after(guard, data, PAUSES).await
    }

    /// Writes how a job ended, again for as long as the lock is held, and for one TTL at most: a lock may be renewed although no record is
    /// taken down.
    pub(super) async fn write_end(&self, guard: &RecordedGuard, end: &Progress) -> Result<(), Error> {
        let clock = self.lock.clock();
        let until = clock.now().plus(self.lock.lease().ttl);
        let more =
            std::iter::from_fn(|| Some(until.since(clock.now()).min(LONG_PAUSE)).filter(|pause| !pause.is_zero()));
        self.write_after(guard, &end.to_bytes(), PAUSES.into_iter().chain(more)).await
    }

    /// Writes the record, again after each of these pauses if that is unknown or no server could be asked, as long as the lock is held: only
    /// this holder writes. The outcome is unknown if that of any try was.
    async fn write_after(
        &self,
        guard: &RecordedGuard,
        data: &[u8],
        pauses: impl IntoIterator<Item = Duration>,
    ) -> Result<(), Error> {
        let (clock, mut pauses, mut may_be_written) = (self.lock.clock(), pauses.into_iter(), false);
        loop {
            let Err(error) = guard.write(data).await else { return Ok(()) };
            let failed = |error| if may_be_written { unknown(error, MAY_BE_WRITTEN) } else { error };
            if !may_pass(error.kind()) || !guard.is_held() {
                return Err(failed(error));
            }
            let Some(pause) = pauses.next() else { return Err(failed(error)) };
            clock.sleep_until(clock.now().plus(pause)).await;
            if !guard.is_held() {
                return Err(failed(error));
            }
            log(|| tracing::debug!(name = %self.lock.name(), %error, "a record may not be written; writing it again"));
            may_be_written |= !error.is_definite();
        }
    }

    /// Reads what a record beside this lock says.
    pub(super) fn progress(&self, record: Option<&Record>) -> Result<Option<Progress>, Error> {
        Progress::of(record, self.lock.name())
    }

    /// Has a record that is still asked for kept for longer, unless somebody has the lock or it has changed: best effort, once in half
    /// of its retention. Whoever wants another slot meanwhile finds it busy.
    pub(super) async fn refresh(&self, seen: &Progress) {
        let Ok(Some(guard)) = self.lock.try_lock().await else { return };
        if self.progress(Some(guard.record())).is_ok_and(|found| found.as_ref() == Some(seen)) {
            self.tell_failure(guard.while_polled(guard.write(&seen.refreshed().to_bytes())).await);
        }
        release(guard).await;
    }

    /// Tells the log of a record that is not kept for longer.
    pub(super) fn tell_failure(&self, refreshed: Result<(), Error>) {
        if let Err(error) = refreshed {
            log(|| tracing::debug!(name = %self.lock.name(), %error, "the record could not be refreshed"));
        }
    }
}

/// Whether the same request may succeed soon: no server could be asked, or its answer is not known.
pub(super) fn may_pass(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Indeterminate | ErrorKind::Unavailable)
}
