//! Waiting for a lock: the waiters of this client, and the heartbeats that keep their places at the server.

pub(crate) mod heartbeat;
pub(crate) mod queue;
