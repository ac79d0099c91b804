//! Names and ids of a history.

use std::sync::Arc;

/// A name or an id. Equal ones of one history share their memory.
pub type Text = Arc<str>;
