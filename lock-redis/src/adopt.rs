//! Adoptions: a mutex that another client has detached goes on under this attempt's nonce.

use std::sync::{Arc, LazyLock};

use lock_core::driver::{Attempt, Grant};
use lock_core::{Error, ErrorKind, GrantId, Phase};

use crate::acquire::Acquirer;
use crate::client::identity::Identity;
use crate::client::links::Links;
use crate::store::call::{Request, milliseconds};
use crate::store::keys::{Form, KeySpace};
use crate::store::scripts::Script;

/// Puts a mutex that is held under another nonce.
static ADOPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("store/scripts/mutex/adopt.lua")));

/// Adopts mutexes.
#[derive(Debug)]
pub(crate) struct Adopter {
    links: Arc<Links>,
    keys: Arc<KeySpace>,
    identity: Arc<Identity>,
    acquirer: Arc<Acquirer>,
}

impl Adopter {
    /// Adopts over these links what counts where an acquisition would.
    pub(crate) fn new(
        links: &Arc<Links>,
        keys: &Arc<KeySpace>,
        identity: &Arc<Identity>,
        acquirer: &Arc<Acquirer>,
    ) -> Self {
        let (links, keys, identity) = (links.clone(), keys.clone(), identity.clone());
        Self { links, keys, identity, acquirer: acquirer.clone() }
    }

    /// Whether grants at this key can be taken over: not at one that is shared with Redisson.
    pub(crate) fn is_adoptable(&self, attempt: &Attempt) -> bool {
        self.keys.form(&attempt.name, attempt.kind) == Form::Text
    }

    /// Takes over the grant with this id; `None` if the server has no such grant.
    pub(crate) async fn adopt(&self, attempt: &Attempt, from: GrantId) -> Result<Option<Grant>, Error> {
        let keys = self.keys.checked(&attempt.name, attempt.kind)?;
        if !self.is_adoptable(attempt) {
            let what = "a grant at a key that is shared with Redisson cannot be passed on";
            return Err(attempt.error(ErrorKind::Unsupported, Phase::Acquire, what));
        }
        let (nonce, from, until) = (attempt.id.to_string(), from.to_string(), self.links.until());
        let (ttl, owner) = (milliseconds(attempt.ttl), self.acquirer.owner.of(&attempt.owner)?);
        let args =
            [nonce.as_bytes(), self.identity.client.as_bytes(), owner.as_bytes(), ttl.as_bytes(), from.as_bytes()];
        let lock = keys.lock_only();
        let request = Request::new(&ADOPT, &lock, &args);
        let (reply, _) = self.links.run_for(attempt, request, Phase::Acquire, until).await?;
        let mut fields = self.links.fields(reply.value, &nonce, Phase::Acquire)?;
        if fields.number()? == 0 {
            return Ok(None);
        }
        let grant = Grant::new(Some(fields.token()?), reply.sent_at, attempt.ttl);
        self.acquirer.confirmed(attempt, Some(grant), until).await.map_err(|error| {
            // What is undone is gone: the grant that was to be passed on has ended, too.
            let what = "the lock was adopted, but too few replicas confirmed it; it is released";
            let unknown = attempt.error(ErrorKind::Indeterminate, Phase::Acquire, what);
            unknown.with_server(self.links.server()).with_source(error)
        })
    }
}
