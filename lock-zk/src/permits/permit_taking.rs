//! One taking of permits, carried out: makes the requests that its [`Taking`] asks for.

use std::sync::Arc;

use futures_util::future::join;
use lock_core::Error;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind};

use super::free_permits::FreePermits;
use super::taking::{Taking, TakingAction, TakingEvent};
use crate::client::{Created, Fate};
use crate::error::{self, FIRST_PAUSE, StepError, retry_unanswered};
use crate::registry::incoming::{HandedOver, PermitNodes};
use crate::registry::{Registration, Registry};
use crate::release::Releaser;
use crate::session::is_spent;
use crate::store::node::HolderRecord;

/// The taking of an attempt's permits, in the place of its node in the queue or without one.
pub(super) struct PermitTaking<'a> {
    attempt: &'a Attempt,
    registration: &'a Registration,
    registry: &'a Registry,
    free: FreePermits<'a>,
    /// The node in the queue in whose place the permits come.
    place: Option<&'a Created>,
    /// The transaction that is the token.
    token: Option<i64>,
    /// The sending of the request whose answer proves the grant.
    sent_at: BootInstant,
    /// The names of all permits, as they were listed right behind ours.
    listed: Option<Vec<String>>,
}

impl<'a> PermitTaking<'a> {
    /// A taking that begins. The token is the transaction that made the place in the queue, if there is one.
    pub(super) fn new(
        attempt: &'a Attempt,
        registration: &'a Registration,
        registry: &'a Registry,
        place: Option<&'a Created>,
    ) -> Self {
        let free = FreePermits::new(attempt, registration, registry);
        let token = place.map(|place| place.czxid);
        Self { attempt, registration, registry, free, place, token, sent_at: SystemClock.now(), listed: None }
    }

    /// Makes the permits, however often answers are lost, and returns the grant; `None` if that was in vain: the place in the
    /// queue is lost or, without one, somebody is there or they were too many.
    pub(super) async fn run(self, releaser: &Releaser) -> Result<Option<Grant>, StepError> {
        let taking = match self.place {
            Some(_) => Taking::in_place(self.registration.lock.is_shared()),
            None => Taking::without_place(),
        };
        self.go_on(taking, TakingAction::Make, releaser).await
    }

    /// Receives the permits that a holder of this process hands over, as [`run`](PermitTaking::run) does; `None` also if it could not. Returns the
    /// instant at which that was heard with them.
    pub(super) async fn receive(
        mut self,
        handed_over: HandedOver,
        releaser: &Releaser,
    ) -> Result<Option<Grant>, StepError> {
        let mut taking = Taking::in_place(false);
        self.sent_at = handed_over.sent_at;
        let made = self.registration.received(handed_over.made, handed_over.was_changing).await;
        let heard_at = SystemClock.now();
        let event = match made {
            Ok(paths) => {
                self.registry.moved_on(self.registration, paths, handed_over.next, self.sent_at);
                TakingEvent::Made
            }
            Err(failure) if failure.fate == Fate::Unknown => TakingEvent::Unanswered,
            Err(failure) if failure.fate == Fate::Ended => return Err(failure.into()),
            // Nothing was done: the permits are counted and waited for, as if nobody had handed any over.
            Err(_) => return Ok(None),
        };
        let action = taking.step(event);
        let granted = self.go_on(taking, action, releaser).await?;
        Ok(granted.map(|granted| granted.with_woken_at(heard_at)))
    }

    async fn go_on(
        mut self,
        mut taking: Taking,
        mut action: TakingAction,
        releaser: &Releaser,
    ) -> Result<Option<Grant>, StepError> {
        let (mut pauses, mut was_spent) = (error::pauses(), false);
        loop {
            let asked = match action {
                TakingAction::Make => self.make().await,
                TakingAction::MakeDirectory => self.make_directories().await,
                TakingAction::Find => self.find().await,
                TakingAction::Count => self.count().await,
                TakingAction::Taken => {
                    let token = self.token.unwrap_or_default();
                    match self.registration.session.grant(self.attempt, token, self.sent_at)? {
                        // Once only.
                        Some(granted) if is_spent(&granted) && !std::mem::replace(&mut was_spent, true) => {
                            action = TakingAction::Find;
                        }
                        Some(granted) => return Ok(Some(granted)),
                        // No server is reached. Whoever calls gives up when the session ends.
                        None => tokio::time::sleep(FIRST_PAUSE).await,
                    }
                    continue;
                }
                TakingAction::GiveBack => return releaser.withdraw(self.registration).await,
                TakingAction::InVain => return Ok(None),
            };
            let event = match asked {
                Err(error) if error.is(Fate::Unknown) => {
                    // What was asked for is searched for at once, and then now and then.
                    if action == TakingAction::Find {
                        tokio::time::sleep(pauses.next().unwrap_or(FIRST_PAUSE)).await;
                    }
                    TakingEvent::Unanswered
                }
                asked => asked?,
            };
            action = taking.step(event);
        }
    }

    async fn make(&mut self) -> Result<TakingEvent, StepError> {
        let made = match self.place {
            Some(place) => self.exchange(place).await,
            None => self.make_behind_nobody().await,
        };
        match made {
            Err(error) if error.is(Fate::Missing) => Ok(TakingEvent::Missing),
            // Whoever may not delete the directory of the queue has a place there.
            Err(error) if error.is(Fate::Denied) && self.place.is_none() => Ok(TakingEvent::Occupied),
            made => made,
        }
    }

    /// Leaves the queue with the permits.
    async fn exchange(&self, place: &Created) -> Result<TakingEvent, StepError> {
        let PermitNodes { new, record, .. } = permit_nodes(self.attempt, self.registration, place)?;
        let (sent_at, next) = (SystemClock.now(), self.registry.waiter_behind(self.registration));
        self.registry.node_may_go(self.registration);
        let paths = self.registration.exchange(std::slice::from_ref(&place.path), &new, &record).await?;
        self.registry.moved_on(self.registration, paths, next, sent_at);
        Ok(TakingEvent::Made)
    }

    /// Makes the permits unless somebody is in the queue, and lists all permits behind them. Their transaction is the token.
    async fn make_behind_nobody(&mut self) -> Result<TakingEvent, StepError> {
        let record = self.record().to_bytes();
        let wanted = self.registration.lock.permits(self.registration.grant, self.free.asked(), record.len())?;
        self.sent_at = SystemClock.now();
        let (claimed, listed) = self.registration.claim(&wanted, &record);
        let (claimed, listed) = join(claimed, listed).await;
        self.listed = listed.ok().map(Arc::unwrap_or_clone);
        let Some(nodes) = claimed? else { return Ok(TakingEvent::Occupied) };
        let made = nodes.first().map(|node| node.czxid);
        self.registry.set_permits(self.registration, nodes.into_iter().map(|node| node.path).collect());
        Ok(match made {
            Some(czxid) => {
                self.token = Some(czxid);
                TakingEvent::Made
            }
            None => TakingEvent::Occupied,
        })
    }

    /// Makes the directory of the permits, and that of the queue if the attempt has no place there.
    async fn make_directories(&self) -> Result<TakingEvent, StepError> {
        let (connection, lock) = (&self.registration.session.connection, &self.registration.lock);
        let permits = connection.make_directory(lock.permit_directory());
        let queue =
            async { if self.place.is_none() { connection.make_directory(&lock.directory).await } else { Ok(()) } };
        let (permits, queue) = join(permits, queue).await;
        permits?;
        queue?;
        Ok(TakingEvent::DirectoryMade)
    }

    /// Searches for permits of which the answer was lost.
    async fn find(&mut self) -> Result<TakingEvent, StepError> {
        self.sent_at = SystemClock.now();
        let lock = &self.registration.lock;
        let found = self.registration.own_nodes(lock.permit_directory()).await?;
        let paths: Vec<_> = found.iter().map(|(contender, _)| lock.permit_path(&contender.name)).collect();
        if !paths.is_empty() {
            self.registry.set_permits(self.registration, paths);
        }
        let made = found.first().map(|(_, node)| node.czxid);
        self.token = self.token.or(made);
        Ok(TakingEvent::Found(made.is_some()))
    }

    /// Counts the permits up to ours, by a listing that was made after them if there is one. Without a place nobody has compared the
    /// limits before.
    async fn count(&mut self) -> Result<TakingEvent, StepError> {
        let free = self.free;
        let is_within = if self.place.is_some() {
            retry_unanswered(|| free.is_within_limit()).await?
        } else {
            let held = match self.listed.take() {
                Some(names) => self.registration.lock.held(names)?,
                None => retry_unanswered(|| free.held()).await?,
            };
            retry_unanswered(|| free.is_claim_within_limit(&held)).await?
        };
        Ok(TakingEvent::Counted(is_within))
    }

    fn record(&self) -> HolderRecord {
        HolderRecord::new(self.attempt, self.registration.session.connection.timeout())
    }
}

/// Returns the nodes by which an attempt gets its permits in this place, which is their token.
pub(super) fn permit_nodes(
    attempt: &Attempt,
    registration: &Registration,
    place: &Created,
) -> Result<PermitNodes, Error> {
    let permits = if let Kind::Permits { permits, .. } = attempt.kind { permits } else { 1 };
    let record = HolderRecord::new(attempt, registration.session.connection.timeout()).with_token(place.czxid);
    let record = record.to_bytes();
    let new = registration.lock.permits(registration.grant, permits, record.len())?;
    Ok(PermitNodes { permits, new, record })
}
