//! The nodes at the servers: their places, their names, and what they say.

pub(crate) mod force_release;
pub(crate) mod kept_record;
pub(crate) mod layout;
pub(crate) mod node;
