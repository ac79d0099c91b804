//! The way to the server that has the locks.

use std::ops::Deref;

use lock_core::Error;

use super::Recipe;
use crate::harness::Broken;
use crate::servers::redis::SentinelDeployment;
use crate::servers::resp::Resp;
use crate::specimens::backend::unavailable;

/// Where a client's commands go.
#[derive(Debug)]
pub(super) enum Way {
    /// To this server.
    Known(Resp),
    /// To whichever server the sentinels name, who are asked before every step.
    Asked(SentinelDeployment),
}

/// The server that has the locks just now.
#[derive(Debug)]
pub(super) enum Leader<'a> {
    Known(&'a Resp),
    Found(Box<Resp>),
}

impl Way {
    pub(super) async fn to(url: &str, recipe: Recipe) -> Result<Self, Error> {
        Self::find(url, recipe).await.map_err(|broken| unavailable(&broken))
    }

    async fn find(url: &str, recipe: Recipe) -> Result<Self, Broken> {
        if url.starts_with("redis://") {
            return Ok(Self::Known(Resp::from_url(url)?));
        }
        let sentinels = SentinelDeployment::existing(url).await?;
        Ok(match recipe {
            // Once and for all: the flaw.
            Recipe::Pinned => Self::Known(Resp::new(sentinels.master_address().await?)),
            _ => Self::Asked(sentinels),
        })
    }

    pub(super) async fn leader(&self) -> Result<Leader<'_>, Broken> {
        Ok(match self {
            Self::Known(server) => Leader::Known(server),
            Self::Asked(sentinels) => Leader::Found(Box::new(Resp::new(sentinels.master_address().await?))),
        })
    }
}

impl Deref for Leader<'_> {
    type Target = Resp;

    fn deref(&self) -> &Resp {
        match self {
            Self::Known(server) => server,
            Self::Found(server) => server,
        }
    }
}
