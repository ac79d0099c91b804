//! The command connections of one client, however its servers are arranged.

use std::borrow::Cow;
use std::sync::Arc;

use lock_core::clock::BootInstant;
use lock_core::{Error, Phase};
use tokio::sync::watch;

use super::cluster::Router;
use super::dial::{Dial, Opener};
use super::link::{Call, Failed, Link, Raw, Reply, Request};
use super::place::Place;
use super::push::Push;
use super::sentinel::{self, Sentinels};
use crate::config::RedisConfig;
use crate::script::Script;
use crate::url::{Target, Topology};

/// The command connections of one client.
#[derive(Debug)]
pub(crate) enum Links {
    /// To the one master that there is.
    One { link: Arc<Link>, dial: Arc<Dial>, sentinels: Option<Arc<Sentinels>> },
    /// To each master of a cluster.
    Cluster { router: Arc<Router>, opener: Arc<Opener> },
}

impl Links {
    /// Connects, and keeps connected until [`close`](Links::close).
    ///
    /// # Errors
    /// If no first connection can be made.
    pub(crate) async fn connect(config: &RedisConfig, target: Target) -> Result<Self, Error> {
        let (tls, op_timeout) = (target.tls.then(|| config.tls()), config.client.op_timeout);
        let opener = Arc::new(Opener::new(&target.login, target.database, tls.as_ref(), op_timeout)?);
        match target.topology {
            Topology::Server(address) => Self::to_one(Arc::new(Dial::to(opener, address)), None).await,
            Topology::Sentinel { sentinels, master } => {
                let login = config.sentinel_login();
                let asks = Opener::new(&login, 0, tls.as_ref(), op_timeout)?;
                let sentinels = Arc::new(Sentinels::new(asks, sentinels, master));
                let dial = Dial::at(opener, Place::Master(sentinels.clone()), sentinels.shown());
                Self::to_one(Arc::new(dial), Some(sentinels)).await
            }
            Topology::Cluster(seeds) => {
                Ok(Self::Cluster { router: Router::connect(opener.clone(), seeds).await?, opener })
            }
        }
    }

    async fn to_one(dial: Arc<Dial>, sentinels: Option<Arc<Sentinels>>) -> Result<Self, Error> {
        Ok(Self::One { link: Link::connect(dial.clone()).await?, dial, sentinels })
    }

    /// How to reach a server that publishes what the masters do.
    pub(crate) fn to_listen(&self) -> Arc<Dial> {
        match self {
            Self::One { dial, .. } => dial.clone(),
            Self::Cluster { router, opener } => {
                let place = Place::AnyNode(router.nodes().clone());
                Arc::new(Dial::at(opener.clone(), place, router.server().to_owned()))
            }
        }
    }

    /// Keeps both kinds of connections at the master, where it can move.
    pub(crate) fn follow(&self, push: &Arc<Push>) {
        if let Self::One { link, sentinels: Some(sentinels), .. } = self {
            tokio::spawn(sentinel::follow(sentinels.clone(), link.clone(), push.clone()));
        }
    }

    /// What errors call the server.
    pub(crate) fn server(&self) -> &str {
        match self {
            Self::One { link, .. } => link.server(),
            Self::Cluster { router, .. } => router.server(),
        }
    }

    /// Changes whenever something may have been lost: a connection was replaced, or another server took over.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        match self {
            Self::One { link, .. } => link.changes(),
            Self::Cluster { router, .. } => router.ledger().changes(),
        }
    }

    /// Whether of all connections since this one only the present one for this key can still carry something out that
    /// counts.
    pub(crate) fn is_settled(&self, first: u64, key: impl FnOnce() -> String) -> bool {
        match self {
            Self::One { link, .. } => link.is_settled(first),
            Self::Cluster { router, .. } => router.is_settled(first, &key()),
        }
    }

    /// Waits for the connection for this key.
    ///
    /// # Errors
    /// If there is none until `until`.
    pub(crate) async fn ready(&self, key: &str, until: BootInstant) -> Result<(), Error> {
        match self {
            Self::One { link, .. } => link.ready(until).await,
            Self::Cluster { router, .. } => router.ready(key, until).await,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::One { link, .. } => link.is_closed(),
            Self::Cluster { router, .. } => router.is_closed(),
        }
    }

    /// Ends every connection.
    pub(crate) fn close(&self) {
        match self {
            Self::One { link, .. } => link.close(),
            Self::Cluster { router, .. } => router.close(),
        }
    }

    /// Gives up the connection of this number: its replies cannot be trusted.
    pub(crate) fn distrust(&self, generation: u64) {
        match self {
            Self::One { link, .. } => link.distrust(generation),
            Self::Cluster { router, .. } => router.distrust(generation),
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
        match self {
            Self::One { link, .. } => link.run(script, keys, args, phase, until, sent).await,
            Self::Cluster { router, .. } => router.run(Request { script, keys, args }, phase, until, sent).await,
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
        match self {
            Self::One { link, .. } => link.run_each(script, calls, phase, until).await,
            Self::Cluster { router, .. } => router.run_each(script, calls, phase, until).await,
        }
    }
}
