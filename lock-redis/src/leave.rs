//! Leaving: the grant of a mutex becomes one of another id, which nobody of this client renews or releases, and ends by itself.

use std::sync::Arc;
use std::time::Duration;

use lock_core::driver::{Attempt, Left};
use lock_core::{Error, ErrorKind, GrantId, Phase};

use crate::client::links::Links;
use crate::client::push;
use crate::release::is_foreign;
use crate::store::call::{Request, milliseconds_at_least};
use crate::store::keys::KeySpace;

/// Leaves mutexes.
#[derive(Debug)]
pub(crate) struct Leaver {
    links: Arc<Links>,
    keys: Arc<KeySpace>,
}

impl Leaver {
    /// Leaves mutexes over these links.
    pub(crate) fn new(links: &Arc<Links>, keys: &Arc<KeySpace>) -> Self {
        Self { links: links.clone(), keys: keys.clone() }
    }

    /// Has the grant of a mutex end after this time, under another id.
    pub(crate) async fn leave(&self, attempt: &Attempt, left: GrantId, time: Duration) -> Result<Left, Error> {
        let keys = &self.keys.of(&attempt.name, attempt.kind);
        let Some(script) = keys.form.leave() else {
            let what = "a lock of this kind cannot be left";
            return Err(attempt.error(ErrorKind::Unsupported, Phase::Release, what));
        };
        self.links.note_lease(time);
        let (nonce, left) = (attempt.id.to_string(), left.to_string());
        let (time, forced) = (milliseconds_at_least(time), keys.forced());
        let args = [nonce.as_bytes(), left.as_bytes(), time.as_bytes(), forced.as_bytes()];
        let (lock, until) = (keys.lock_only(), self.links.until());
        let request = Request::new(script, &lock, &args);
        let asked = self.links.run_for(attempt, request, Phase::Release, until).await;
        let (reply, before) = match asked {
            Ok(answered) => answered,
            Err(error) if is_foreign(&error) => return Ok(Left::NotHeld(None)),
            Err(error) => return Err(error),
        };
        let mut fields = self.links.fields(reply.value, &nonce, Phase::Release)?;
        if fields.number()? == 1 {
            return Ok(Left::Done);
        }
        let why = fields.text()?;
        if why.is_empty() && before.0 {
            // Either an earlier sending of this request has left it, and it has ended since, or it was lost before.
            let what = "the grant is gone; whether it was left is unknown, as the first answer never came";
            return Err(attempt.error(ErrorKind::Indeterminate, Phase::Release, what).with_server(self.links.server()));
        }
        Ok(Left::NotHeld((!why.is_empty()).then(|| push::forced(&why))))
    }
}
