//! The backend: the servers, and what every operation does with all of them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Backend, Cancelled, Doubts, Operator, Released, Renewal, Renewed};
use lock_core::{Error, GrantId, Guarantees, Phase};

use tokio::sync::Notify;

use super::background::Background;
use super::config::QuorumConfig;
use super::member::Member;
use super::refusal::too_few;
use super::release::{Freed, Releases, Tells, first_sent};
use super::tally::majority;
use super::wait::{Handover, Queues};
use super::{NAME, guarantees_if};
use crate::client::dial::Dial;
use crate::client::link::request::Failed;
use crate::client::predecessors::Predecessors;
use crate::client::push::{Inbox, Message, Push};
use crate::store::dialect::Dialects;
use crate::store::keys::{KeySpace, Keys};

/// How long connecting may take at least.
const CONNECT: Duration = Duration::from_secs(1);

/// How long the others are waited for when a majority is connected: a first lock that only just a majority holds would
/// not survive the next outage.
const GRACE: Duration = Duration::from_millis(100);

/// One client's connections to independent servers.
#[derive(Debug)]
pub struct QuorumBackend {
    pub(super) members: Arc<[Arc<Member>]>,
    pub(super) background: Background,
    pub(super) op_timeout: Duration,
    /// The longest TTL that is let through, if there is one.
    pub(super) limit: Option<Duration>,
    pub(super) releases: Arc<Releases>,
    pub(super) queues: Arc<Queues>,
    /// The channels, one at each server, on which waiters are told of a release.
    pub(super) pushes: Vec<Arc<Push>>,
    pub(super) predecessors: Arc<Predecessors>,
}

impl QuorumBackend {
    pub(super) async fn connect(config: &QuorumConfig) -> Result<Self, Error> {
        let dials: Vec<_> = config.dials()?.into_iter().map(Arc::new).collect();
        let (predecessors, owing) = (Arc::<Predecessors>::default(), Arc::<Notify>::default());
        let op_timeout = config.client.op_timeout;
        let start = |dial: &Arc<Dial>| Member::start(dial.clone(), predecessors.clone(), op_timeout, owing.clone());
        let members: Arc<[_]> = dials.iter().map(start).collect();
        // From here on, dropping the backend closes the connections.
        let background = Background::start(members.clone(), owing);
        let releases = Arc::new(Releases {
            members: members.clone(),
            background: background.clone(),
            op_timeout,
            limit: config.limit(),
            keys: KeySpace::new(config.prefix.clone(), Dialects::new()),
            client: GrantId::random()?,
        });
        let stopping = releases.clone();
        let queues = Queues::new(majority(members.len()), Box::new(move |lock| stopping.stop_waiting(lock, &[])));
        let listen = |(server, dial)| Push::begin(dial, releases.channel(), inbox(&queues, server));
        let pushes = dials.into_iter().enumerate().map(listen).collect();
        let backend =
            Self { members, background, op_timeout, limit: config.limit(), releases, queues, pushes, predecessors };
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

    pub(super) fn until(&self) -> BootInstant {
        SystemClock.now().plus(self.op_timeout)
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
        let Keys { lock, shared, .. } = self.releases.keys(&attempt.name);
        let Handover { here, elsewhere, pause } = self.queues.released(&lock, attempt.id, shared);
        let tells = if elsewhere { Tells::Next(pause) } else { Tells::Nobody };
        let answers = self.releases.send(&self.releases.release(attempt, Phase::Release, tells));
        if here {
            self.queues.hand_over(&lock, pause);
        }
        let Freed { released, others_wait } = self.releases.confirmed(answers, Phase::Release).await?;
        self.queues.set_others_wait(&lock, others_wait);
        Ok(released)
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        if attempt.note() == 0 {
            // Nothing was ever sent.
            return Ok(Cancelled::Settled);
        }
        let since = first_sent(attempt);
        // It may have been granted meanwhile: then its release is news for others.
        let mut asked = self.releases.send(&self.releases.release(attempt, Phase::Cancel, Tells::Next(Duration::ZERO)));
        let (mut settled, mut answers, until) = (true, 0, self.until());
        while let Some((place, answer)) = asked.next_until(until).await {
            answers += 1;
            let link = &self.members[place].link;
            settled &= match answer {
                Ok(_) | Err(Failed { wrong_type: true, .. }) => link.is_settled_since(since),
                Err(_) => !link.was_up_since(since),
            };
        }
        settled &= answers == self.members.len();
        Ok(if settled { Cancelled::Settled } else { Cancelled::AskAgain })
    }

    fn doubts(&self) -> Option<Doubts> {
        Some(self.predecessors.changes())
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

impl Drop for QuorumBackend {
    fn drop(&mut self) {
        self.pushes.iter().for_each(|push| push.close());
    }
}

/// Takes one server's news for this client's waiters.
fn inbox(queues: &Arc<Queues>, server: usize) -> Inbox {
    let queues = Arc::downgrade(queues);
    Box::new(move |message| {
        if let (Message::AskAfter { lock, pause }, Some(queues)) = (message, queues.upgrade()) {
            queues.told(&lock, server, pause);
        }
    })
}
