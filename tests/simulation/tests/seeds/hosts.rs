//! The hosts of a run.

/// The number of hosts with clients: the last one is the dropper's, the others the workers'.
pub(crate) const CLIENTS: usize = WORKERS + 1;
pub(crate) const WORKERS: usize = 3;
/// The name of the only server.
pub(crate) const SERVER: &str = SERVERS[0];
/// The names of the servers of a quorum.
pub(crate) const SERVERS: [&str; 3] = ["redis", "redis-2", "redis-3"];

/// The name of a client's host.
pub(crate) fn host(client: usize) -> String {
    format!("client-{client}")
}
