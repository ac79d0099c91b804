//! The text of an item that describes a holder: JSON.

use lock_core::{GrantId, Owner};
use serde::{Deserialize, Serialize};

/// Record of a holder, beside its number.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HolderRecord {
    pub(crate) grant: GrantId,
    pub(crate) owner: Owner,
    pub(crate) token: Option<u64>,
    /// Beginning of the hold, in ms since 1970 by the holder's clock.
    pub(crate) since: u64,
    /// Whether it waits for others to leave.
    #[serde(default)]
    pub(crate) waits: bool,
}

impl HolderRecord {
    /// Reads an item's value; `None` if it is no record.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    /// The item's value.
    pub(crate) fn text(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }
}
