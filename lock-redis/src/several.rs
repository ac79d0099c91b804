//! One request for several locks at once: may I have all of them now.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::clock::BootInstant;
use lock_core::driver::{Attempt, Cancelled, Grant, SeveralOutcome};
use lock_core::{Error, ErrorKind, Phase};

use crate::acquire::Acquirer;
use crate::client::identity::Identity;
use crate::client::links::Links;
use crate::release::Releaser;
use crate::store::call::{Request, milliseconds, mode};
use crate::store::keys::{Form, KeySpace, Keys};
use crate::store::reply::Fields;
use crate::store::scripts;

/// The most locks that one run of the script takes, and the bytes of keys and arguments that it may have: it takes far less than 5 ms.
const MOST: usize = 64;
const MOST_BYTES: usize = 64 * 1024;

/// The time past its deadline that a request may take to undo its grants. What that does not settle, the core does.
const UNDOING: Duration = Duration::from_millis(100);

/// Asks for several locks at once.
#[derive(Debug)]
pub(crate) struct SeveralAcquirer {
    links: Arc<Links>,
    keys: Arc<KeySpace>,
    identity: Arc<Identity>,
    acquirer: Arc<Acquirer>,
    releaser: Arc<Releaser>,
}

impl SeveralAcquirer {
    /// Asks over these links.
    pub(crate) fn new(
        links: &Arc<Links>,
        keys: &Arc<KeySpace>,
        identity: &Arc<Identity>,
        acquirer: &Arc<Acquirer>,
        releaser: &Arc<Releaser>,
    ) -> Self {
        let (links, keys, identity) = (links.clone(), keys.clone(), identity.clone());
        Self { links, keys, identity, acquirer: acquirer.clone(), releaser: releaser.clone() }
    }

    /// Takes all of them by one run of one script, or none.
    ///
    /// OneByOne, if they are not all in one slot of a cluster, if one is shared with Redisson, if they are too many or too long, and where
    /// one of them needs more than that script has: a queue that is to be cleared of the dead, or an error that is to be told.
    pub(crate) async fn try_several(&self, attempts: &[&Attempt]) -> Result<SeveralOutcome, Error> {
        let keys = attempts.iter().map(|attempt| self.keys.checked(&attempt.name, attempt.kind));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let Some((first, request)) = attempts.first().zip(self.request(attempts, &keys)?) else {
            return Ok(SeveralOutcome::OneByOne);
        };
        let until = self.links.until();
        let of_all: Vec<_> = keys.iter().flat_map(Keys::all).collect();
        let args: Vec<_> = request.iter().flat_map(|args| args.each_ref().map(String::as_bytes)).collect();
        let request = Request::new(&scripts::SEVERAL, &of_all, &args);
        let asked = self.links.run_for_all(attempts, request, Phase::Acquire, until);
        let (reply, before) = asked.await?;
        let mut fields = self.links.fields(reply.value, &first.id.to_string(), Phase::Acquire)?;
        let status = fields.number()?;
        if status == 1 {
            return self.confirmed(attempts, grants(attempts, fields, reply.sent_at)?, until).await;
        }
        if before.0 {
            // An earlier sending may have taken them, and others have come to wait for them since.
            self.undo(attempts, until).await?;
        }
        Ok(if status == 0 { SeveralOutcome::Held } else { SeveralOutcome::OneByOne })
    }

    /// The arguments of each; `None` if they cannot be asked for at once.
    fn request(&self, attempts: &[&Attempt], keys: &[Keys]) -> Result<Option<Vec<[String; 5]>>, Error> {
        let are_kept_apart = keys.iter().any(|keys| keys.form == Form::Redisson);
        if attempts.len() > MOST || are_kept_apart || !self.links.are_together(keys.iter().map(|keys| &*keys.lock)) {
            return Ok(None);
        }
        let mut request = Vec::with_capacity(attempts.len());
        for attempt in attempts {
            let owner = self.acquirer.owner.of(&attempt.owner)?.to_string();
            let (nonce, client) = (attempt.id.to_string(), self.identity.client.to_string());
            request.push([nonce, client, milliseconds(attempt.ttl), owner, mode(attempt)]);
        }
        let bytes = request.iter().flatten().map(String::len).sum::<usize>();
        // The lock's key is part of four of them, and the fifth is short.
        let bytes = bytes + keys.iter().map(|keys| 5 * keys.lock.len()).sum::<usize>();
        Ok((bytes <= MOST_BYTES).then_some(request))
    }

    /// Lets the grants count only if each is confirmed by `until`, where that is wanted; undoes all of them otherwise.
    async fn confirmed(
        &self,
        attempts: &[&Attempt],
        grants: Vec<Grant>,
        until: BootInstant,
    ) -> Result<SeveralOutcome, Error> {
        let each = attempts.iter().zip(grants);
        let each = each.map(|(attempt, grant)| self.acquirer.confirmed(attempt, Some(grant), until));
        let outcomes: Result<Vec<_>, _> = join_all(each).await.into_iter().collect();
        match outcomes {
            Ok(grants) => Ok(SeveralOutcome::Granted(grants.into_iter().flatten().collect())),
            Err(error) => {
                let undone = self.undo(attempts, until.plus(UNDOING)).await;
                Err(match undone {
                    Ok(()) => error,
                    Err(unknown) => unknown.with_source(error),
                })
            }
        }
    }

    /// Leaves nothing of any of them.
    ///
    /// # Errors
    /// [`ErrorKind::Indeterminate`] if that is not certain by `until`.
    async fn undo(&self, attempts: &[&Attempt], until: BootInstant) -> Result<(), Error> {
        let undone = join_all(attempts.iter().map(|attempt| self.releaser.cancel(attempt, until))).await;
        if undone.iter().all(|outcome| matches!(outcome, Ok(Cancelled::Settled))) {
            return Ok(());
        }
        let what = "not all of the locks can be had, and an earlier request may still hold some of them";
        Err(Error::new(ErrorKind::Indeterminate, Phase::Acquire, what).with_server(self.links.server()))
    }
}

/// The grants of a reply: a token and the time that it is kept, for each.
fn grants(attempts: &[&Attempt], mut fields: Fields<'_>, sent_at: BootInstant) -> Result<Vec<Grant>, Error> {
    let grant = |_| Ok(Grant::new(Some(fields.token()?), sent_at, fields.milliseconds()?));
    attempts.iter().map(grant).collect()
}
