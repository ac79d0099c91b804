//! The hosts of a run.

/// The number of hosts with clients: the last one is the dropper's, the others the workers'.
pub(crate) const CLIENTS: usize = WORKERS + 1;
pub(crate) const WORKERS: usize = 3;
/// The server's name.
pub(crate) const SERVER: &str = "redis";

/// The name of a client's host.
pub(crate) fn host(client: usize) -> String {
    format!("client-{client}")
}
