//! Finding the server that is meant: its address at this moment.

pub(crate) mod cluster;
pub(crate) mod sentinel;

use std::sync::Arc;

use lock_core::Error;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value, cmd};

use self::cluster::map::Nodes;
use self::sentinel::Sentinels;
use crate::client::address::Address;

/// The number of nodes of a cluster that are tried, where any of them would do.
const MOST_CHOICES: usize = 3;

/// A server's place, which may move.
#[derive(Debug)]
pub(crate) enum Location {
    /// Always there.
    At(Address),
    /// A master, wherever the sentinels say that it is.
    Master(Arc<Sentinels>),
    /// Any node of a cluster, another one each time.
    AnyNode(Arc<Nodes>),
}

impl Location {
    pub(in crate::client) async fn find(&self) -> Result<Address, Error> {
        match self {
            Self::At(address) => Ok(address.clone()),
            Self::Master(sentinels) => sentinels.find().await,
            Self::AnyNode(nodes) => Ok(nodes.next()),
        }
    }

    /// The number of places in which it is worth looking, one after the other.
    pub(in crate::client) fn choices(&self) -> usize {
        match self {
            Self::At(_) | Self::Master(_) => 1,
            Self::AnyNode(nodes) => nodes.count().min(MOST_CHOICES),
        }
    }

    /// Whether the server there is what it is taken for. A sentinel may not have heard yet, and a master that was
    /// replaced may not either.
    pub(in crate::client) async fn check(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        if let Self::Master(_) = self {
            let role: Vec<Value> = cmd("ROLE").query_async(connection).await?;
            if role.first() != Some(&Value::BulkString(b"master".to_vec())) {
                let what = (redis::ErrorKind::Server(redis::ServerErrorKind::ReadOnly), "it is no master");
                return Err(what.into());
            }
        }
        Ok(())
    }
}
