//! The making and the end of a client's links, and what else reaches the same servers.

use std::sync::Arc;

use lock_core::Error;
use lock_core::driver::supervised;

use super::{Links, Masters};
use crate::client::dial::{Dial, Opener};
use crate::client::key_tracking::{KeyTracking, OnChange};
use crate::client::link::Link;
use crate::client::locate::cluster::Router;
use crate::client::locate::sentinel::{self, Sentinels};
use crate::client::push::Push;
use crate::client::replica_acks::ReplicaAcks;
use crate::config::{RedisConfig, Replicas};
use crate::url::{Servers, Target};

impl Links {
    /// Connects, and keeps connected until [`close`](Links::close).
    ///
    /// # Errors
    /// If no first connection can be made.
    pub(crate) async fn connect(config: &RedisConfig, target: Target) -> Result<Self, Error> {
        let (tls, op_timeout) = (target.tls.then(|| config.tls()), config.client.op_timeout);
        let opener = Opener::new(&target.login, target.database, tls.as_ref(), op_timeout)?.over(config.network());
        let opener = Arc::new(opener.for_keys_of(format!("{}:mutex:", config.prefix).into()));
        let masters = match target.servers {
            Servers::One(address) => Masters::one(Dial::to(opener.clone(), address), None).await?,
            Servers::Sentinel { sentinels, master } => {
                let asks = Opener::new(&config.sentinel_login(), 0, tls.as_ref(), op_timeout)?.over(config.network());
                let sentinels = Arc::new(Sentinels::new(asks, sentinels, master));
                Masters::one(Dial::at(opener.clone(), sentinels.clone(), sentinels.shown()), Some(sentinels)).await?
            }
            Servers::Cluster(seeds) => Masters::Cluster(Router::connect(opener.clone(), seeds).await?),
        };
        Ok(Self { masters, opener })
    }

    /// Makes the connections that are not made yet, as far as they can be made soon.
    pub(crate) async fn warm_up(&self) {
        if let Masters::Cluster(router) = &self.masters {
            router.warm_up().await;
        }
    }

    /// Keeps both kinds of connections at the master, where it can move.
    pub(crate) fn follow(&self, push: &Arc<Push>) {
        if let Masters::One { link, sentinels: Some(sentinels), .. } = &self.masters {
            let (sentinels, link, push) = (sentinels.clone(), link.clone(), push.clone());
            let follow = move || sentinel::follow(sentinels.clone(), link.clone(), push.clone());
            tokio::spawn(supervised("sentinels", follow));
        }
    }

    /// The way to a server that publishes what the masters do.
    pub(crate) fn to_listen(&self) -> Arc<Dial> {
        match &self.masters {
            Masters::One { dial, .. } => dial.clone(),
            Masters::Cluster(router) => {
                Arc::new(Dial::at(self.opener.clone(), router.nodes().clone(), router.server().to_owned()))
            }
        }
    }

    /// Tracking of keys at the masters.
    pub(crate) fn tracking(&self, heard: OnChange) -> KeyTracking {
        KeyTracking::new(self.opener.clone(), heard)
    }

    /// Requests for acknowledgements by so many replicas.
    pub(crate) fn replica_acks(&self, needed: Replicas) -> ReplicaAcks {
        ReplicaAcks::new(self.opener.clone(), needed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        match &self.masters {
            Masters::One { link, .. } => link.is_closed(),
            Masters::Cluster(router) => router.is_closed(),
        }
    }

    /// Ends every connection.
    pub(crate) fn close(&self) {
        match &self.masters {
            Masters::One { link, .. } => link.close(),
            Masters::Cluster(router) => router.close(),
        }
    }
}

impl Masters {
    async fn one(dial: Dial, sentinels: Option<Arc<Sentinels>>) -> Result<Self, Error> {
        let dial = Arc::new(dial);
        Ok(Self::One { link: Link::connect(dial.clone()).await?, dial, sentinels })
    }
}

/// Closes the command connections of a client that does not come to be, by an error or because nobody waits for it.
pub(crate) struct UnfinishedLinks {
    links: Arc<Links>,
    armed: bool,
}

impl UnfinishedLinks {
    pub(crate) fn new(links: Links) -> Self {
        Self { links: Arc::new(links), armed: true }
    }

    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    /// The links of a client that has come to be.
    pub(crate) fn finish(mut self) -> Arc<Links> {
        self.armed = false;
        self.links.clone()
    }
}

impl Drop for UnfinishedLinks {
    fn drop(&mut self) {
        if self.armed {
            self.links.close();
        }
    }
}
