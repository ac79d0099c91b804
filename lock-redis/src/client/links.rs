//! The command connections of one client, however its servers are arranged.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::BootInstant;
use lock_core::{Error, Phase};
use tokio::sync::watch;

use super::address::Address;
use super::call::Call;
use super::dial::{Dial, Opener};
use super::key_tracking::{KeyTracking, OnChange};
use super::link::Link;
use super::locate::Location;
use super::locate::cluster::Router;
use super::locate::sentinel::{self, Sentinels};
use super::push::Push;
use super::replica_acks::ReplicaAcks;
use super::request::{Failed, Raw, Reply, Request};
use crate::config::RedisConfig;
use crate::guarantees::Topology;
use crate::store::scripts::Script;
use crate::url::{Servers, Target};

/// The command connections of one client.
#[derive(Debug)]
pub(crate) struct Links {
    masters: Masters,
    opener: Arc<Opener>,
    replica_acks: Option<ReplicaAcks>,
}

#[derive(Debug)]
enum Masters {
    /// To the one master that there is.
    One { link: Arc<Link>, dial: Arc<Dial>, sentinels: Option<Arc<Sentinels>> },
    /// To each master of a cluster.
    Cluster(Arc<Router>),
}

impl Links {
    /// Connects, and keeps connected until [`close`](Links::close).
    ///
    /// # Errors
    /// If no first connection can be made.
    pub(crate) async fn connect(config: &RedisConfig, target: Target) -> Result<Self, Error> {
        let (tls, op_timeout) = (target.tls.then(|| config.tls()), config.client.op_timeout);
        let opener =
            Arc::new(Opener::new(&target.login, target.database, tls.as_ref(), op_timeout)?.over(config.network()));
        let masters = match target.servers {
            Servers::One(address) => Masters::one(Dial::to(opener.clone(), address), None).await?,
            Servers::Sentinel { sentinels, master } => {
                let asks = Opener::new(&config.sentinel_login(), 0, tls.as_ref(), op_timeout)?.over(config.network());
                let sentinels = Arc::new(Sentinels::new(asks, sentinels, master));
                let place = Location::Master(sentinels.clone());
                Masters::one(Dial::at(opener.clone(), place, sentinels.shown()), Some(sentinels)).await?
            }
            Servers::Cluster(seeds) => Masters::Cluster(Router::connect(opener.clone(), seeds).await?),
        };
        let replica_acks = config.replicas.map(|needed| ReplicaAcks::new(opener.clone(), needed));
        Ok(Self { masters, opener, replica_acks })
    }

    /// Makes the connections that are not made yet, as far as they can be made soon.
    pub(crate) async fn warm_up(&self) {
        if let Masters::Cluster(router) = &self.masters {
            router.warm_up().await;
        }
    }

    pub(crate) fn topology(&self) -> Topology {
        match &self.masters {
            Masters::One { sentinels: None, .. } => Topology::Single,
            Masters::One { sentinels: Some(_), .. } => Topology::Sentinel,
            Masters::Cluster(_) => Topology::Cluster,
        }
    }

    /// Who asks replicas, if that is wanted.
    pub(crate) fn replica_acks(&self) -> Option<&ReplicaAcks> {
        self.replica_acks.as_ref()
    }

    /// Where the master of this key is, if anybody is.
    pub(crate) fn master(&self, key: &str) -> Option<Address> {
        match &self.masters {
            Masters::One { link, .. } => link.present().map(|live| live.server),
            Masters::Cluster(router) => router.master(key),
        }
    }

    /// The number of the master of this key among those that there are; 0 while nobody is known to be.
    pub(crate) fn place(&self, key: impl FnOnce() -> String) -> u64 {
        match &self.masters {
            Masters::One { .. } => 0,
            Masters::Cluster(router) => router.master(&key()).map_or(0, |master| {
                let mut hasher = DefaultHasher::new();
                master.hash(&mut hasher);
                hasher.finish()
            }),
        }
    }

    /// Tracking of keys at the masters.
    pub(crate) fn tracking(&self, heard: OnChange) -> KeyTracking {
        KeyTracking::new(self.opener.clone(), heard)
    }

    /// How to reach a server that publishes what the masters do.
    pub(crate) fn to_listen(&self) -> Arc<Dial> {
        match &self.masters {
            Masters::One { dial, .. } => dial.clone(),
            Masters::Cluster(router) => {
                let place = Location::AnyNode(router.nodes().clone());
                Arc::new(Dial::at(self.opener.clone(), place, router.server().to_owned()))
            }
        }
    }

    /// Keeps both kinds of connections at the master, where it can move.
    pub(crate) fn follow(&self, push: &Arc<Push>) {
        if let Masters::One { link, sentinels: Some(sentinels), .. } = &self.masters {
            tokio::spawn(sentinel::follow(sentinels.clone(), link.clone(), push.clone()));
        }
    }

    /// What errors call the server.
    pub(crate) fn server(&self) -> &str {
        match &self.masters {
            Masters::One { link, .. } => link.server(),
            Masters::Cluster(router) => router.server(),
        }
    }

    /// Changes whenever something may have been lost: a connection was replaced, or another server took over.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        match &self.masters {
            Masters::One { link, .. } => link.changes(),
            Masters::Cluster(router) => router.predecessors().changes(),
        }
    }

    /// Whether of all connections since this one only the present one for this key can still carry something out that
    /// counts.
    pub(crate) fn is_settled(&self, first: u64, key: impl FnOnce() -> String) -> bool {
        match &self.masters {
            Masters::One { link, .. } => link.is_settled(first),
            Masters::Cluster(router) => router.is_settled(first, &key()),
        }
    }

    /// Takes note of a lease that is about to be asked for.
    pub(crate) fn asks_for(&self, ttl: Duration) {
        match &self.masters {
            Masters::One { link, .. } => link.asks_for(ttl),
            Masters::Cluster(router) => router.predecessors().asks_for(ttl),
        }
    }

    /// Waits for the connection for this key.
    ///
    /// # Errors
    /// If there is none until `until`.
    pub(crate) async fn ready(&self, key: &str, until: BootInstant) -> Result<(), Error> {
        match &self.masters {
            Masters::One { link, .. } => link.ready(until).await,
            Masters::Cluster(router) => router.ready(key, until).await,
        }
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

    /// Gives up the connection of this number: its replies cannot be trusted.
    pub(crate) fn distrust(&self, generation: u64) {
        match &self.masters {
            Masters::One { link, .. } => link.distrust(generation),
            Masters::Cluster(router) => router.distrust(generation),
        }
    }

    /// Runs a script, waiting for a connection at most until `until`. What may have been carried out is never sent again.
    ///
    /// `sent` is told each connection before anything is sent on it, so that a caller that is dropped in the middle
    /// leaves a trace.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[Cow<'_, str>],
        args: &[&[u8]],
        phase: Phase,
        until: BootInstant,
        sent: impl Fn(u64),
    ) -> Result<Reply, Failed> {
        match &self.masters {
            Masters::One { link, .. } => link.run(script, keys, args, phase, until, sent).await,
            Masters::Cluster(router) => router.run(Request { script, keys, args }, phase, until, sent).await,
        }
    }

    /// Runs one script for many keys, a pipeline for each server; one outcome for each.
    pub(crate) async fn run_each(
        &self,
        script: &Script,
        calls: &[Call],
        phase: Phase,
        until: BootInstant,
    ) -> Vec<Result<Raw, Failed>> {
        match &self.masters {
            Masters::One { link, .. } => link.run_each(script, calls, phase, until).await,
            Masters::Cluster(router) => router.run_each(script, calls, phase, until).await,
        }
    }
}

impl Masters {
    async fn one(dial: Dial, sentinels: Option<Arc<Sentinels>>) -> Result<Self, Error> {
        let dial = Arc::new(dial);
        Ok(Self::One { link: Link::connect(dial.clone()).await?, dial, sentinels })
    }
}
