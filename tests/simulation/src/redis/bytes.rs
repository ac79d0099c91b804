//! Strings of the server, which are bytes.

/// Bytes of a key, a field, a member or a value.
pub type Bytes = Vec<u8>;
