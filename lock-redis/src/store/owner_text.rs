//! The text of an owner, as it is written beside a nonce.

use std::sync::{Arc, PoisonError, RwLock};

use lock_core::{Error, GrantId, Owner, Phase};

/// The text of the last owner: most often it is the client's own.
#[derive(Debug, Default)]
pub(crate) struct OwnerText(RwLock<Option<(GrantId, Arc<str>)>>);

impl OwnerText {
    /// The text of this owner.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn of(&self, owner: &Owner) -> Result<Arc<str>, Error> {
        if let Some((id, text)) = &*self.0.read().unwrap_or_else(PoisonError::into_inner)
            && *id == owner.id()
        {
            return Ok(text.clone());
        }
        let text: Arc<str> = serde_json::to_string(owner)
            .map_err(|e| Error::invalid(Phase::Acquire, "the owner cannot be written").with_source(e))?
            .into();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some((owner.id(), text.clone()));
        Ok(text)
    }
}
