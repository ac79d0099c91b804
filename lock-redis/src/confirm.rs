//! Confirmation by replicas, if that is wanted: no other grant counts.

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Cancelled, Grant, Renewal, Renewed};
use lock_core::{Error, ErrorKind, Phase};

use crate::client::link::request::Raw;
use crate::client::links::Links;
use crate::client::replica_acks::{Acknowledged, ReplicaAcks};
use crate::release::Releaser;
use crate::renew::{Renewer, renewal_of};
use crate::store::keys::KeySpace;

/// The time past its deadline that an acquisition may take to undo a grant. What that does not settle, the core does.
const UNDOING: Duration = Duration::from_millis(100);

/// The confirmation of grants by replicas.
#[derive(Debug)]
pub(crate) struct Confirmation {
    acks: ReplicaAcks,
    keys: Arc<KeySpace>,
    links: Arc<Links>,
    renewer: Arc<Renewer>,
    releaser: Arc<Releaser>,
}

impl Confirmation {
    /// Confirmation by these acknowledgements.
    pub(crate) fn new(
        acks: ReplicaAcks,
        keys: &Arc<KeySpace>,
        links: &Arc<Links>,
        renewer: &Arc<Renewer>,
        releaser: &Arc<Releaser>,
    ) -> Self {
        Self { acks, keys: keys.clone(), links: links.clone(), renewer: renewer.clone(), releaser: releaser.clone() }
    }

    /// Lets a grant count only if as many replicas as are wanted have it by `until`; undoes it otherwise.
    pub(crate) async fn confirmed(
        &self,
        attempt: &Attempt,
        granted: Grant,
        until: BootInstant,
    ) -> Result<Grant, Error> {
        let error = match self.acknowledged(attempt, until).await {
            Ok((sent_at, valid_for)) => return Ok(Grant::new(granted.token, sent_at, valid_for)),
            Err(error) => error,
        };
        // An unknown outcome of the undoing is one of the acquisition: the core then undoes it in the background.
        let unknown = |why: String| {
            let what = format!("{error}; undoing the grant: {why}");
            attempt.error(ErrorKind::Indeterminate, Phase::Acquire, what).with_server(self.links.server())
        };
        match self.releaser.cancel(attempt, until.plus(UNDOING)).await {
            Ok(Cancelled::Settled) => Err(error),
            Ok(_) => Err(unknown("a copy of the request may still be on its way".to_owned())),
            Err(undoing) => Err(unknown(undoing.to_string())),
        }
    }

    /// Waits by `until` until as many replicas as are wanted have whatever was written for this grant before.
    ///
    /// # Errors
    /// `Indeterminate` otherwise: what was written may be lost with its master.
    pub(crate) async fn is_kept(&self, attempt: &Attempt, until: BootInstant) -> Result<(), Error> {
        let kept = self.acknowledged(attempt, until).await;
        kept.map(drop).map_err(|error| {
            let what = "the record was written, but too few replicas are known to have it";
            attempt
                .error(ErrorKind::Indeterminate, Phase::Hold, what)
                .with_server(self.links.server())
                .with_source(error)
        })
    }

    /// Renews the grant where replicas can be waited for. Returns when that was asked for, and how long the grant is kept from then on.
    async fn acknowledged(&self, attempt: &Attempt, until: BootInstant) -> Result<(BootInstant, Duration), Error> {
        let refused =
            |what: String| attempt.error(ErrorKind::Unavailable, Phase::Acquire, what).with_server(self.links.server());
        let renewal = Renewal::new(attempt, attempt.ttl);
        let keys = self.keys.of(&attempt.name, attempt.kind);
        let server = self.links.master(&keys.lock);
        let server = server.ok_or_else(|| refused("there is no master whose replicas could be asked".to_owned()))?;
        let sent_at = SystemClock.now();
        let script = &keys.scripts().renew;
        let asked = self.acks.ask(&server, script, renewal_of(keys, &renewal), until).await;
        let Acknowledged { value, replicas } = asked.map_err(|e| {
            // What is denied is denied the next time, too.
            let kind = if e.kind() == ErrorKind::Denied { ErrorKind::Denied } else { ErrorKind::Unavailable };
            let what = "the replicas could not be asked";
            attempt.error(kind, Phase::Acquire, what).with_server(self.links.server()).with_source(e)
        })?;
        let needed = self.acks.needed();
        if replicas < needed.count {
            let what = format!(
                "{replicas} instead of {} replicas acknowledged the grant within {:?}",
                needed.count, needed.timeout
            );
            return Err(refused(what));
        }
        // Another server than the one that granted it may have been asked: there it is not.
        match self.renewer.renewed(&renewal, Ok(Raw { value, generation: 0 })) {
            Renewed::For(valid_for) => Ok((sent_at, valid_for)),
            _ => Err(refused("the grant was gone before replicas acknowledged it".to_owned())),
        }
    }
}
