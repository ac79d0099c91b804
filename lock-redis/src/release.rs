//! What makes room for others: a release, a cancellation, a change of what is held.

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::BootInstant;
use lock_core::driver::{Attempt, Released};
use lock_core::{Error, ErrorKind, Phase};

use crate::backend::Shared;
use crate::cause::Cause;
use crate::client::push;
use crate::store::dialect::Form;
use crate::store::keys::Keys;
use crate::store::scripts::{self, Script};
use crate::wait::queue::WaitQueues;

/// What a script that made room replies if it could not let in at once all who find room.
pub(crate) const MORE: i64 = 2;

impl Shared {
    /// Gives a lock back for which nobody waits, or says that it has to be done the long way.
    pub(crate) async fn release_short(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        until: BootInstant,
    ) -> Result<ShortRelease, Error> {
        if keys.form != Form::Text || self.waiters.is_busy(&keys.lock) {
            return Ok(ShortRelease::TakeLongWay(SentBefore::NEVER));
        }
        let nonce = attempt.id.to_string();
        let args = [nonce.as_bytes()];
        let reply = self.run(&scripts::RELEASE_SHORT, &keys.to_drop(), &args, attempt, Phase::Release, until).await;
        let (reply, before) = match reply {
            Ok(reply) => reply,
            Err(error) if is_foreign(&error) => return Ok(ShortRelease::TakeLongWay(SentBefore::NEVER)),
            Err(error) => return Err(error),
        };
        if self.short(reply.value, &nonce, Phase::Release)?.0 == b'+' {
            return Ok(ShortRelease::Done);
        }
        self.waiters.found_held(&keys.lock);
        Ok(ShortRelease::TakeLongWay(before))
    }

    /// Runs a script that makes room for others.
    pub(crate) async fn run_release(&self, request: ReleaseRequest<'_>, before: SentBefore) -> Result<Released, Error> {
        let ReleaseRequest { script, keys, attempt, mode, phase, until } = request;
        let nonce = attempt.id.to_string();
        let args =
            [nonce.as_bytes(), self.client.as_bytes(), self.channels.as_bytes(), keys.shared_arg(), mode.as_bytes()];
        // If this future is dropped, the reply is too, and with it the news of a next holder in this process.
        let lost_news = AskOnDrop { waiters: &self.waiters, lock: &keys.lock, armed: true };
        let reply = self.run(script, &keys.all(), &args, attempt, phase, until).await;
        let (reply, again) = match reply {
            Ok(reply) => reply,
            // Whatever the key holds, it is not this grant.
            Err(error) if is_foreign(&error) => return Ok(Released::NotHeld(None)),
            Err(error) if before.0 && error.is_definite() => {
                let what =
                    "whether an earlier sending of this release freed the grant is unknown, and the next one failed";
                let unknown = attempt.error(ErrorKind::Indeterminate, phase, what).with_server(self.link.server());
                return Err(unknown.with_source(error));
            }
            Err(error) => return Err(error),
        };
        lost_news.disarm();
        let mut fields = self.fields(reply.value, &nonce, phase)?;
        let done = fields.number()?;
        if done == 0 {
            let why = fields.text()?;
            if why.is_empty() && phase == Phase::Release && (before.0 || again.0) {
                // Either an earlier sending of this release has done it, or the grant was lost before.
                let what =
                    "the grant is gone; whether this release freed it is unknown, as its first answer never came";
                return Err(attempt.error(ErrorKind::Indeterminate, phase, what).with_server(self.link.server()));
            }
            return Ok(Released::NotHeld((!why.is_empty()).then(|| push::forced(&why))));
        }
        if done == MORE {
            self.waiters.go_on(Arc::new(keys.clone()));
        }
        let next = fields.grants()?;
        for granted in &next {
            self.waiters.granted(*granted, Some(reply.sent_at));
        }
        if !next.is_empty() {
            // The new holders are tasks of this process: they go first.
            tokio::task::yield_now().await;
        }
        Ok(Released::Done)
    }
}

/// A request that makes room for others: a release, a cancellation, a change of what is held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReleaseRequest<'a> {
    /// Replies `{nonce, 1, grants…}`, where the grants are those of this client's waiters that found room, or
    /// `{nonce, 0, why}`; the second is [`MORE`] if more waiters find room than one run lets in.
    pub(crate) script: &'static Script,
    pub(crate) keys: &'a Keys,
    pub(crate) attempt: &'a Attempt,
    /// What the grant is to become, for a change.
    pub(crate) mode: &'a str,
    pub(crate) phase: Phase,
    pub(crate) until: BootInstant,
}

/// Whether the request that was answered had been sent once before, without an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentBefore(pub(crate) bool);

impl SentBefore {
    pub(crate) const NEVER: Self = Self(false);
}

/// What the short way back has done.
pub(crate) enum ShortRelease {
    Done,
    TakeLongWay(SentBefore),
}

/// Asks for a lock at once if an answer that may have named its next holder is lost.
struct AskOnDrop<'a> {
    waiters: &'a WaitQueues,
    lock: &'a str,
    armed: bool,
}

impl AskOnDrop<'_> {
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for AskOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.waiters.ask_after(self.lock, Duration::ZERO);
        }
    }
}

fn is_foreign(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    source.is_some_and(Cause::is_wrong_type)
}
