//! Grants count only when replicas have them, if that is wanted.

use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Cancelled, Grant, Renewal, Renewed};
use lock_core::{Error, ErrorKind, Phase};

use crate::backend::RedisBackend;
use crate::client::replica_acks::{Acknowledged, ReplicaAcks};
use crate::client::request::Raw;

/// How long past its deadline an acquisition may take to undo a grant. What that does not settle, the core does.
const UNDOING: Duration = Duration::from_millis(100);

impl RedisBackend {
    /// Lets a grant count only if as many replicas as are wanted have it by `until`; undoes it otherwise.
    pub(crate) async fn confirmed(
        &self,
        attempt: &Attempt,
        grant: Option<Grant>,
        until: BootInstant,
    ) -> Result<Option<Grant>, Error> {
        let (Some(granted), Some(replica_acks)) = (grant, self.shared.link.replica_acks()) else { return Ok(grant) };
        let error = match self.acknowledged(attempt, granted, replica_acks, until).await {
            Ok(grant) => return Ok(Some(grant)),
            Err(error) => error,
        };
        // An unknown outcome of the undoing is one of the acquisition: the core then undoes it in the background.
        let unknown = |why: String| {
            let what = format!("{error}; undoing the grant: {why}");
            attempt.error(ErrorKind::Indeterminate, Phase::Acquire, what).with_server(self.shared.link.server())
        };
        match self.cancel_by(attempt, until.plus(UNDOING)).await {
            Ok(Cancelled::Settled) => Err(error),
            Ok(_) => Err(unknown("a copy of the request may still be on its way".to_owned())),
            Err(undoing) => Err(unknown(undoing.to_string())),
        }
    }

    /// Has it renewed where replicas can be waited for.
    async fn acknowledged(
        &self,
        attempt: &Attempt,
        granted: Grant,
        replica_acks: &ReplicaAcks,
        until: BootInstant,
    ) -> Result<Grant, Error> {
        let shared = &self.shared;
        let refused = |what: String| {
            attempt.error(ErrorKind::Unavailable, Phase::Acquire, what).with_server(shared.link.server())
        };
        let renewal = Renewal::new(attempt, attempt.ttl);
        let keys = shared.keys(&attempt.name, attempt.kind);
        let server = shared.link.master(&keys.lock);
        let server = server.ok_or_else(|| refused("there is no master whose replicas could be asked".to_owned()))?;
        let sent_at = SystemClock.now();
        let script = &keys.scripts().renew;
        let asked = replica_acks.ask(&server, script, shared.renewal(&renewal), until).await;
        let Acknowledged { value, replicas } =
            asked.map_err(|e| refused("the replicas could not be asked".to_owned()).with_source(e))?;
        let needed = replica_acks.needed();
        if replicas < needed.count {
            let what = format!(
                "{replicas} instead of {} replicas acknowledged the grant within {:?}; it was undone",
                needed.count, needed.timeout
            );
            return Err(refused(what));
        }
        // Another server than the one that granted it may have been asked: there it is not.
        match self.renewed(&renewal, Ok(Raw { value, generation: 0 })) {
            Renewed::For(valid_for) => Ok(Grant::new(granted.token, sent_at, valid_for)),
            _ => Err(refused("the grant was gone before replicas acknowledged it".to_owned())),
        }
    }
}
