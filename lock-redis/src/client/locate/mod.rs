//! Finding the server that is meant, where it can move: a master behind sentinels, the nodes of a cluster.

pub(crate) mod cluster;
pub(crate) mod sentinel;
