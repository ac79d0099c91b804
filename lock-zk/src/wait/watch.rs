//! The wait for a node of a queue to go: told by this process if it is one of its own, watched at the servers if not.

use lock_core::clock::{BootInstant, Clock, SystemClock};

use super::POLL_INTERVAL;
use crate::client::{Failure, Fate};
use crate::registry::{Registration, Registry};
use crate::session::Poller;
use crate::store::node::Contender;

/// The news that the awaited node may have gone.
#[derive(Debug, Default)]
pub(crate) struct NodeNews {
    /// The instant at which it came, if it came as news.
    pub(crate) came_at: Option<BootInstant>,
    /// The sending of the request by which the awaited node was handed over to the one that waits.
    pub(crate) handed_over: Option<BootInstant>,
}

/// Waits until this node of the queue may have gone. This process tells of its own nodes. For other nodes the servers tell, and are asked
/// now and then. They are asked once about an own node that was not listed: somebody else may have deleted it.
pub(crate) async fn wait_for_node(
    registry: &Registry,
    registration: &Registration,
    node: &Contender,
    is_unlisted: bool,
) -> Result<NodeNews, Failure> {
    let path = &*registration.lock.queue_path(&node.name);
    if let Some(leaving) = registry.until_gone(path, registration.grant) {
        let handed_over = tokio::select! {
            biased;
            handed_over = leaving => handed_over,
            was_gone = was_gone(registration, path), if is_unlisted => return was_gone.map(|()| NodeNews::default()),
        };
        return Ok(NodeNews { came_at: Some(SystemClock.now()), handed_over });
    }
    let poller = registration.session.pollers.begin();
    let _kept = loop {
        match registration.session.watch_budget(path, &poller).await {
            Some(kept) => break kept,
            // A look at the one node costs little, where there is no room for one more watch.
            None if is_there(registration, path).await? => {}
            None => return Ok(NodeNews::default()),
        }
    };
    match registration.session.connection.watch(path).await {
        Ok(Some(change)) => tokio::select! {
            biased;
            () = change => Ok(NodeNews { came_at: Some(SystemClock.now()), handed_over: None }),
            gone = is_gone(registration, path, &poller) => gone.map(|()| NodeNews::default()),
        },
        // The listing that follows is repeated until it is answered.
        Err(failure) if failure.fate != Fate::Unknown => Err(failure),
        _ => Ok(NodeNews::default()),
    }
}

/// Looks at one node once, after a while, and resolves if it is gone.
async fn was_gone(registration: &Registration, path: &str) -> Result<(), Failure> {
    let poller = registration.session.pollers.begin();
    loop {
        tokio::time::sleep(poller.pause(POLL_INTERVAL)).await;
        match registration.session.connection.is_there(path).await {
            Ok(false) => return Ok(()),
            Ok(true) => break,
            Err(failure) if failure.fate != Fate::Unknown => return Err(failure),
            Err(_) => {}
        }
    }
    drop(poller);
    std::future::pending().await
}

/// Looks at one node. One of which no answer came may be there.
async fn is_there(registration: &Registration, path: &str) -> Result<bool, Failure> {
    match registration.session.connection.is_there(path).await {
        Err(failure) if failure.fate == Fate::Unknown => Ok(true),
        outcome => outcome,
    }
}

/// Looks at one node now and then, until it is gone.
async fn is_gone(registration: &Registration, path: &str, poller: &Poller<'_>) -> Result<(), Failure> {
    loop {
        tokio::time::sleep(poller.pause(POLL_INTERVAL)).await;
        if !is_there(registration, path).await? {
            return Ok(());
        }
    }
}
