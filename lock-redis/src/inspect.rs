//! The operator's side: who holds, who waits, and freeing a grant by force.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{Kind, Operator};
use lock_core::{Error, GrantId, Holder, Inspection, LockName, Owner, Phase};

use crate::client::identity::Identity;
use crate::client::links::Links;
use crate::release::MORE;
use crate::store::call::Request;
use crate::store::keys::{Form, KeySpace};
use crate::store::reply::Fields;
use crate::store::{record, scripts};
use crate::wait::queue::WaitQueues;

/// The answer of `permits_held.lua` for a count that is not at its end.
const UNFINISHED: i64 = 1;
/// The answer of `permits_held.lua` for a count at its end that counts leases which have ended since they were looked at.
const HAS_ENDED: i64 = 2;

/// The operator's side of one client.
#[derive(Debug)]
pub(crate) struct Inspector {
    links: Arc<Links>,
    keys: Arc<KeySpace>,
    identity: Arc<Identity>,
    queues: Arc<WaitQueues>,
}

impl Inspector {
    /// The inspector of the locks at these keys.
    pub(crate) fn new(
        links: &Arc<Links>,
        keys: &Arc<KeySpace>,
        identity: &Arc<Identity>,
        queues: &Arc<WaitQueues>,
    ) -> Self {
        Self { links: links.clone(), keys: keys.clone(), identity: identity.clone(), queues: queues.clone() }
    }

    /// The number of permits of a semaphore that are held.
    pub(crate) async fn permits_held(&self, name: &LockName, limit: u32) -> Result<u64, Error> {
        let keys = self.keys.checked(name, Kind::Permits { permits: 1, limit })?;
        let (all, until) = (keys.all(), self.links.until());
        let mut counts_again = true;
        loop {
            let request = Request::new(&scripts::PERMITS_HELD, &all, &[]);
            let outcome = self.links.run(request, Phase::Inspect, until, |_| {}).await;
            let reply = outcome.map_err(|failed| failed.error)?;
            let mut fields = self.links.fields(reply.value, &keys.lock, Phase::Inspect)?;
            match (fields.number()?, fields.number()?) {
                (_, UNFINISHED) => {}
                // The count may have begun long before this call, but the next one does not. Leases that end meanwhile are
                // counted, or one that is busy enough would be counted for ever.
                (_, HAS_ENDED) if counts_again => counts_again = false,
                (held, _) => return Ok(u64::try_from(held).unwrap_or_default()),
            }
            if SystemClock.now() >= until {
                let what = "many leases have ended, and there was no time to count them";
                return Err(Error::unavailable(Phase::Inspect, what).with_server(self.links.server()));
            }
        }
    }

    /// Looks at a lock, of which so many holders and waiters are listed at most.
    async fn look(&self, name: &LockName, kind: Kind, most: usize) -> Result<Inspection, Error> {
        let keys = self.keys.checked(name, kind)?;
        let most = most.to_string();
        let reply = self.links.run_once(&keys.scripts().inspect, &keys, &[most.as_bytes()], Phase::Inspect).await?;
        let mut fields = self.links.fields(reply.value, &keys.lock, Phase::Inspect)?;
        let now = fields.number()?;
        let mut inspection = Inspection::default();
        inspection.holders = match keys.form {
            Form::Text | Form::Redisson => record::the_holder(fields.inner()?, now)?,
            Form::Holders => record::all_holders(&fields.pairs()?, now),
        };
        inspection.more_holders = count(&mut fields)?;
        let (queue, entries) = (fields.pairs()?, fields.texts()?);
        let waiters = queue.iter().zip(&entries);
        inspection.waiters =
            waiters.filter_map(|((member, ticket), entry)| record::waiter(member, ticket, entry, now)).collect();
        inspection.more_waiters = count(&mut fields)?;
        Ok(inspection)
    }
}

#[async_trait]
impl Operator for Inspector {
    async fn inspect(&self, name: &LockName, kind: Kind) -> Result<Inspection, Error> {
        self.look(name, kind, Inspection::MOST).await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>, Error> {
        // The script lists one waiter at least.
        Ok(self.look(name, Kind::Mutex, 1).await?.holders.into_iter().next())
    }

    async fn force_release(
        &self,
        name: &LockName,
        kind: Kind,
        grant: GrantId,
        by: &Owner,
        why: &str,
    ) -> Result<bool, Error> {
        let keys = self.keys.checked(name, kind)?;
        let nonce = grant.to_string();
        let why = serde_json::json!([by.to_string(), why]).to_string();
        let args = [nonce.as_bytes(), self.identity.channels.as_bytes(), keys.shared_arg(), why.as_bytes()];
        let reply = self.links.run_once(&keys.scripts().force_release, &keys, &args, Phase::Inspect).await?;
        let done = self.links.fields(reply.value, &nonce, Phase::Inspect)?.number()?;
        if done == MORE {
            self.queues.go_on(Arc::new(keys));
        }
        Ok(done != 0)
    }
}

fn count(fields: &mut Fields<'_>) -> Result<u64, Error> {
    fields.number().map(|number| u64::try_from(number).unwrap_or_default())
}
