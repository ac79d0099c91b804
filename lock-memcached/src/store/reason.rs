//! The text of an item that tells a holder why its lock was released by force: JSON, `[by, reason]`.

use lock_core::LossReason;

/// Reads an item's value; `None` if it is no reason.
pub(crate) fn read(value: &[u8]) -> Option<LossReason> {
    let (by, reason) = serde_json::from_slice(value).ok()?;
    Some(LossReason::ForceReleased { by, reason })
}

/// The item's value.
pub(crate) fn text(by_and_why: &(String, String)) -> String {
    serde_json::to_string(by_and_why).unwrap_or_default()
}
