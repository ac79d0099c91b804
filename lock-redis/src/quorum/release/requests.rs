//! The requests that release on every server: releases, undone rounds, grants freed by force, and news of a release for
//! those who wait.

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::BootInstant;
use lock_core::driver::{Attempt, Kind, Released};
use lock_core::{Error, GrantId, LockName, LossReason, Phase};

use crate::client::link::request::Failed;
use crate::client::push;
use crate::quorum::NAME;
use crate::quorum::ballot::{ScriptVote, majority};
use crate::quorum::client::fan_out::FanOut;
use crate::quorum::client::members::Members;
use crate::quorum::client::send_queue::ScriptRequest;
use crate::quorum::registry::{EVERY_ROUND, PendingRelease};
use crate::quorum::store::scripts;
use crate::store::call::Call;
use crate::store::call::milliseconds;
use crate::store::keys::{KeySpace, Keys};

/// The answers of all servers to a release.
pub(in crate::quorum) type ReleaseVotes = FanOut<Result<ScriptVote, Failed>>;

/// The requests by which one client releases, on every server.
#[derive(Debug)]
pub(in crate::quorum) struct ReleaseRequests {
    /// The client's id: under it servers reserve a lock for the client's waiters, and tell them on its channel.
    client: GrantId,
    members: Arc<Members>,
    keys: Arc<KeySpace>,
}

/// A release that a majority has confirmed.
#[derive(Debug)]
pub(in crate::quorum) struct Freed {
    pub(in crate::quorum) released: Released,
    /// Whether other clients wait for the lock.
    pub(in crate::quorum) others_wait: bool,
}

/// The clients that are told of a release.
#[derive(Debug, Clone, Copy)]
pub(in crate::quorum) enum Tells {
    Nobody,
    /// The one that has waited longest; it asks after this pause.
    Next(Duration),
}

/// The arguments of `release.lua`.
struct ReleaseArgs<'a> {
    id: GrantId,
    last_round: u64,
    /// The reason of a release by force.
    why: &'a str,
    tells: Tells,
    /// Whether the id is a client's that waits no longer.
    stops: bool,
}

impl ReleaseArgs<'_> {
    fn of(id: GrantId, tells: Tells) -> Self {
        Self { id, last_round: EVERY_ROUND, why: "", tells, stops: false }
    }
}

impl ReleaseRequests {
    /// Requests to these servers, of the client of this id.
    pub(in crate::quorum) fn new(client: GrantId, members: &Arc<Members>, keys: &Arc<KeySpace>) -> Self {
        Self { client, members: members.clone(), keys: keys.clone() }
    }

    /// The channel on which the servers tell this client's waiters.
    pub(in crate::quorum) fn channel(&self) -> String {
        format!("{}{}", self.keys.channels(), self.client)
    }

    /// The undoing of every round of an attempt up to this one. Nobody is told of it: others saw the lock held, or try again
    /// by themselves.
    pub(in crate::quorum) fn undo(&self, attempt: &Attempt, last_round: u64) -> PendingRelease {
        self.release_of(attempt, last_round, Phase::Cancel, Tells::Nobody)
    }

    /// The release of an attempt's grant; who is told of it.
    pub(in crate::quorum) fn release(&self, attempt: &Attempt, phase: Phase, tells: Tells) -> PendingRelease {
        self.release_of(attempt, EVERY_ROUND, phase, tells)
    }

    /// The release of whatever has this id, which may be kept for so long, also at a server that is away now.
    pub(in crate::quorum) fn left_over(&self, name: &LockName, id: GrantId, lasts: Duration) -> PendingRelease {
        let keys = self.keys.of(name, Kind::Mutex);
        let request = self.request(&keys, Phase::Release, ReleaseArgs::of(id, Tells::Nobody));
        self.pending_release(id, EVERY_ROUND, None, lasts, request)
    }

    /// The release of a grant of anybody, by force.
    ///
    /// # Errors
    /// If the lock is to be kept at a key that this client uses for something else.
    pub(in crate::quorum) fn force(&self, name: &LockName, id: GrantId, why: &str) -> Result<ReleaseVotes, Error> {
        let keys = self.keys.checked(name, Kind::Mutex)?;
        let request = self.request(
            &keys,
            Phase::Inspect,
            ReleaseArgs { why, ..ReleaseArgs::of(id, Tells::Next(Duration::ZERO)) },
        );
        let until = self.members.until();
        // It is not kept as pending where it fails: an operator who is told that nothing was done may decide otherwise.
        Ok(self.members.ask(|member| member.put(request.clone(), until)))
    }

    /// Takes this client out of the waiters of a lock on every server but these, in the background; servers that have reserved
    /// the lock for it tell the next client.
    pub(in crate::quorum) fn stop_waiting(&self, lock: &str, except: &[usize]) {
        let Some(keys) = self.keys.of_mutex(lock) else { return };
        let request = self.request(
            &keys,
            Phase::Cancel,
            ReleaseArgs { stops: true, ..ReleaseArgs::of(self.client, Tells::Next(Duration::ZERO)) },
        );
        let until = self.members.until();
        // The answers are waited for in the background. Nothing stays pending: the list of waiters expires, and the client may wait
        // again by the time that a server is back.
        drop(self.members.ask_except(except, |member| member.put(request.clone(), until)));
    }

    fn release_of(&self, attempt: &Attempt, last_round: u64, phase: Phase, tells: Tells) -> PendingRelease {
        let args = ReleaseArgs { last_round, ..ReleaseArgs::of(attempt.id, tells) };
        let request = self.request(&self.keys.of(&attempt.name, Kind::Mutex), phase, args);
        let since = first_sent(attempt).unwrap_or(BootInstant::from_origin(Duration::ZERO));
        self.pending_release(attempt.id, last_round, Some(since), attempt.ttl, request)
    }

    /// The release of a grant that may last for longer than its TTL: by an extension by hand, also of the client that had it before it was
    /// adopted. The servers end what is left.
    fn pending_release(
        &self,
        id: GrantId,
        last_round: u64,
        since: Option<BootInstant>,
        ttl: Duration,
        request: Arc<ScriptRequest>,
    ) -> PendingRelease {
        let lasts = ttl.max(self.members.longest_lease());
        PendingRelease { id, last_round, since, over_at: self.members.until().plus(lasts), request }
    }

    /// The run of `release.lua` for this grant, or for this client's own id.
    fn request(&self, keys: &Keys, phase: Phase, args: ReleaseArgs<'_>) -> Arc<ScriptRequest> {
        let ReleaseArgs { id, last_round, why, tells, stops } = args;
        let (channels, pause) = match tells {
            Tells::Nobody => (String::new(), Duration::ZERO),
            Tells::Next(pause) => (self.keys.channels(), pause),
        };
        let reserves = if keys.shared { "" } else { "1" };
        let stops = if stops { "1" } else { "" };
        let mut digits = [0; GrantId::LENGTH];
        let mut call = Call::of([&*keys.lock, &keys.forced(), &keys.waiters()]).with([id.encode(&mut digits)]);
        call.push_number(last_round);
        let call = call.with([why, &channels, stops, &milliseconds(pause), reserves]);
        Arc::new(ScriptRequest::new(&scripts::RELEASE, call, phase).with_others('r'))
    }

    /// Releases on every server. The requests are on their way when this returns.
    pub(in crate::quorum) fn send(&self, pending_release: &PendingRelease) -> ReleaseVotes {
        self.send_except(pending_release, &[])
    }

    /// Releases on every server but these.
    pub(in crate::quorum) fn send_except(&self, pending_release: &PendingRelease, except: &[usize]) -> ReleaseVotes {
        let until = self.members.until();
        self.members.ask_except(except, |member| member.release(pending_release.clone(), until))
    }

    /// Waits until a majority has freed the grant or a majority has none of it. If neither comes, the lock is free as soon as
    /// a majority has answered: then nothing of the grant keeps others from a majority.
    pub(in crate::quorum) async fn confirmed(&self, mut answers: ReleaseVotes, phase: Phase) -> Result<Freed, Error> {
        let (servers, until) = (self.members.count(), self.members.until());
        let majority = majority(servers);
        let (mut freed, mut absent, mut why, mut reasons) = (0, 0, None, Vec::new());
        let mut others_wait = false;
        while freed < majority && absent < majority {
            match answers.next_until(until).await {
                Some((_, Ok(ScriptVote { yes: true, rest }))) => {
                    freed += 1;
                    others_wait |= rest.parse().is_ok_and(|waiting: u64| waiting > 0);
                }
                Some((_, Ok(ScriptVote { yes: false, rest }))) => {
                    absent += 1;
                    why = why.or(lost_by(&rest));
                }
                // Whatever the key holds there, it is not this grant.
                Some((_, Err(failed))) if failed.wrong_type => absent += 1,
                Some((_, Err(failed))) => reasons.push(failed.error),
                None => {
                    // Those that are missing were asked too, by a runtime that stands still.
                    if freed + absent + reasons.len() < servers {
                        let what = "no answer within the operation timeout";
                        reasons.push(Error::indeterminate(phase, what).with_backend(NAME));
                    }
                    break;
                }
            }
        }
        if absent >= majority {
            return Ok(Freed { released: Released::NotHeld(why), others_wait });
        }
        if freed + absent >= majority {
            return Ok(Freed { released: Released::Done, others_wait });
        }
        let error = self.members.too_few(phase, reasons);
        if freed > 0 && error.is_definite() {
            let what = "the lock is released at some servers, but too few have answered";
            return Err(Error::indeterminate(phase, what).with_backend(NAME).with_source(error));
        }
        Err(error)
    }
}

/// The instant at which the attempt sent its first request, if it ever did: its mark, in µs.
pub(in crate::quorum) fn first_sent(attempt: &Attempt) -> Option<BootInstant> {
    attempt.first_sent().map(|mark| BootInstant::from_origin(Duration::from_micros(mark)))
}

/// An operator's reason, if the grant was freed by force.
pub(in crate::quorum) fn lost_by(why: &str) -> Option<LossReason> {
    (!why.is_empty()).then(|| push::forced(why))
}
