//! The way to the server that has the locks.

use std::sync::Arc;

use lock_core::Error;
use lock_testkit::HarnessError;
use lock_testkit_servers::redis::SentinelDeployment;
use lock_testkit_servers::resp::Resp;

use super::Recipe;
use crate::backend::unavailable;

/// The server to which a client's commands go.
#[derive(Debug)]
pub(super) enum Way {
    /// To this server.
    Known(Arc<Resp>),
    /// To the one that the sentinels name, who are asked before every step.
    Asked(SentinelDeployment),
}

impl Way {
    pub(super) async fn to(url: &str, recipe: Recipe) -> Result<Self, Error> {
        Self::find(url, recipe).await.map_err(|error| unavailable(&error))
    }

    async fn find(url: &str, recipe: Recipe) -> Result<Self, HarnessError> {
        if url.starts_with("redis://") {
            return Ok(Self::Known(Arc::new(Resp::from_url(url)?)));
        }
        let sentinels = SentinelDeployment::existing(url).await?;
        Ok(match recipe {
            // Once and for all: the flaw.
            Recipe::Pinned => Self::Known(Arc::new(Resp::new(sentinels.master_address().await?))),
            _ => Self::Asked(sentinels),
        })
    }

    /// The server that has the locks just now.
    pub(super) async fn leader(&self) -> Result<Arc<Resp>, HarnessError> {
        Ok(match self {
            Self::Known(server) => server.clone(),
            Self::Asked(sentinels) => Arc::new(Resp::new(sentinels.master_address().await?)),
        })
    }
}
