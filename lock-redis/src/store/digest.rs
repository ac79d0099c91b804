//! The digest by which a server knows a script.

pub(crate) fn of(code: &str) -> String {
    redis::Script::new(code).get_hash().to_owned()
}
