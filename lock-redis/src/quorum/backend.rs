//! The backend: the servers, and what every operation does with all of them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::backend::{Attempt, Backend, Cancelled, Doubts, Kind, Operator, Released, Renewal, Renewed};
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, GrantId, Guarantees, LockName, LossReason, Phase};

use tokio::sync::Notify;

use super::asked::Asked;
use super::background::Background;
use super::config::QuorumConfig;
use super::member::{Debt, Member, Request, Said};
use super::refusal::too_few;
use super::scripts;
use super::tally::majority;
use super::{NAME, guarantees_if};
use crate::connection::former::Ledger;
use crate::connection::push;
use crate::connection::request::Failed;
use crate::dialect::Dialects;
use crate::keys::Keys;

/// How long connecting may take at least.
const CONNECT: Duration = Duration::from_secs(1);

/// How long the others are waited for when a majority is connected: a first lock that only just a majority holds would
/// not survive the next outage.
const GRACE: Duration = Duration::from_millis(100);

/// Frees whatever the round; the largest number that a script keeps exactly.
const EVERY_ROUND: u64 = (1 << 53) - 1;

/// One client's connections to independent servers.
#[derive(Debug)]
pub struct QuorumBackend {
    pub(super) members: Arc<[Arc<Member>]>,
    pub(super) background: Background,
    pub(super) op_timeout: Duration,
    /// The longest TTL that is let through, if there is one.
    pub(super) limit: Option<Duration>,
    pub(super) ledger: Arc<Ledger>,
    prefix: String,
}

impl QuorumBackend {
    pub(super) async fn connect(config: &QuorumConfig) -> Result<Self, Error> {
        let dials = config.dials()?;
        let (ledger, owing) = (Arc::<Ledger>::default(), Arc::<Notify>::default());
        let op_timeout = config.client.op_timeout;
        let start = |dial| Member::start(dial, ledger.clone(), op_timeout, owing.clone());
        let members: Arc<[_]> = dials.into_iter().map(start).collect();
        // From here on, dropping the backend closes the connections.
        let background = Background::start(members.clone(), owing);
        let (limit, prefix) = (config.limit(), config.prefix.clone());
        let backend = Self { members, background, op_timeout, limit, ledger, prefix };
        backend.ready(SystemClock.now().plus(op_timeout.max(CONNECT))).await?;
        Ok(backend)
    }

    /// Waits until a majority is connected, and a moment for the others.
    async fn ready(&self, until: BootInstant) -> Result<(), Error> {
        let (mut connected, mut reasons) = (0, Vec::new());
        let mut members: FuturesUnordered<_> = self.members.iter().map(|member| member.link.ready(until)).collect();
        let mut enough = BootInstant::FAR_FUTURE;
        loop {
            tokio::select! {
                outcome = members.next() => match outcome {
                    Some(Ok(())) => connected += 1,
                    Some(Err(reason)) => reasons.push(reason),
                    None => break,
                },
                () = SystemClock.sleep_until(enough) => break,
            }
            if connected == self.majority() && enough == BootInstant::FAR_FUTURE {
                enough = SystemClock.now().plus(GRACE);
            }
        }
        if connected >= self.majority() {
            return Ok(());
        }
        Err(self.too_few(Phase::Connect, reasons))
    }

    pub(super) fn too_few(&self, phase: Phase, reasons: Vec<Error>) -> Error {
        too_few(phase, self.members.len(), reasons)
    }

    pub(super) fn majority(&self) -> usize {
        majority(self.members.len())
    }

    pub(super) fn keys(&self, name: &LockName) -> Keys {
        Keys::of(&self.prefix, name, Kind::Mutex, &Dialects::new())
    }

    pub(super) fn until(&self) -> BootInstant {
        SystemClock.now().plus(self.op_timeout)
    }

    /// What undoes every round of an attempt up to this one.
    pub(super) fn debt(&self, attempt: &Attempt, last_round: u64, phase: Phase) -> Debt {
        let give = self.request(&attempt.name, attempt.id, last_round, phase, "");
        Debt { id: attempt.id, since: first_sent(attempt), give }
    }

    fn request(&self, name: &LockName, id: GrantId, last_round: u64, phase: Phase, why: &str) -> Arc<Request> {
        let keys = self.keys(name);
        let forced = keys.forced().into_owned();
        let args = vec![id.to_string(), last_round.to_string(), why.to_owned()];
        Arc::new(Request { script: &scripts::GIVE, keys: vec![keys.lock, forced], args, phase })
    }

    /// Frees a grant of whomever by force; whether it was there.
    pub(super) async fn free_by_force(&self, name: &LockName, id: GrantId, why: &str) -> Result<bool, Error> {
        let give = self.request(name, id, EVERY_ROUND, Phase::Inspect, why);
        let debt = Debt { id, since: SystemClock.now(), give };
        Ok(self.free(&debt).await? == Released::Done)
    }

    /// Gives back on every server.
    pub(super) fn give(&self, debt: &Debt) -> Asked<Result<Said, Failed>> {
        let until = self.until();
        Asked::all(&self.background, self.members.iter().map(|member| member.clone().give(debt.clone(), until)))
    }

    /// Gives a grant back on every server, and waits until a majority has freed it or a majority has none of it. If
    /// neither comes, it is free as soon as a majority has answered: then nothing of it keeps others from a majority.
    async fn free(&self, debt: &Debt) -> Result<Released, Error> {
        let (mut freed, mut absent, mut why, mut reasons) = (0, 0, None, Vec::new());
        let mut asked = self.give(debt);
        while freed < self.majority() && absent < self.majority() {
            match asked.next().await {
                Some((_, Ok(Said { yes: true, .. }))) => freed += 1,
                Some((_, Ok(Said { yes: false, rest }))) => {
                    absent += 1;
                    why = why.or(lost_by(&rest));
                }
                // Whatever the key holds there, it is not this grant.
                Some((_, Err(failed))) if failed.wrong_type => absent += 1,
                Some((_, Err(failed))) => reasons.push(failed.error),
                None => break,
            }
        }
        if absent >= self.majority() {
            return Ok(Released::NotHeld(why));
        }
        if freed + absent >= self.majority() {
            return Ok(Released::Done);
        }
        Err(self.too_few(debt.give.phase, reasons))
    }
}

#[async_trait]
impl Backend for QuorumBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn guarantees(&self) -> Guarantees {
        guarantees_if(self.limit.is_some())
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        self.renew_on_all(batch).await
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        self.free(&self.debt(attempt, EVERY_ROUND, Phase::Release)).await
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        if attempt.note() == 0 {
            // Nothing was ever sent.
            return Ok(Cancelled::Settled);
        }
        let since = first_sent(attempt);
        let mut asked = self.give(&self.debt(attempt, EVERY_ROUND, Phase::Cancel));
        let mut settled = true;
        while let Some((place, answer)) = asked.next().await {
            let link = &self.members[place].link;
            settled &= match answer {
                Ok(_) | Err(Failed { wrong_type: true, .. }) => link.is_settled_since(since),
                Err(_) => !link.was_up_since(since),
            };
        }
        Ok(if settled { Cancelled::Settled } else { Cancelled::AskAgain })
    }

    fn doubts(&self) -> Option<Doubts> {
        Some(self.ledger.changes())
    }

    /// A server that is away is owed what a release could not undo there.
    fn is_settled(&self, attempt: &Attempt) -> bool {
        let since = first_sent(attempt);
        let settled = |member: &Arc<Member>| !member.link.is_up() || member.link.is_settled_since(since);
        attempt.note() == 0 || self.members.iter().all(settled)
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }
}

/// When the attempt sent its first request: its note, in µs, as long as it is not 0.
pub(super) fn first_sent(attempt: &Attempt) -> BootInstant {
    BootInstant::from_origin(Duration::from_micros(attempt.note()))
}

/// What an operator wrote, if the grant was freed by force.
pub(super) fn lost_by(why: &str) -> Option<LossReason> {
    (!why.is_empty()).then(|| push::forced(why))
}
