//! The wait for a node of a queue to go: told by this process if it is one of its own, watched at the servers if not.

use lock_core::clock::{BootInstant, Clock, SystemClock};

use super::POLL_INTERVAL;
use crate::client::{Failure, Fate};
use crate::registry::{Registration, Registry};
use crate::session::{NodeWatch, Poller};
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
/// now and then. They are asked once about an own node that was not listed: somebody else may have deleted it. They are asked now and then
/// about an own node that may go: the call that ends it may be kept without being polled, and tell nothing. The first one that finds an own
/// node gone tells the others.
pub(crate) async fn wait_for_node(
    registry: &Registry,
    registration: &Registration,
    node: &Contender,
    is_unlisted: bool,
) -> Result<NodeNews, Failure> {
    let path = &*registration.lock.queue_path(&node.name);
    if let Some(mut ahead) = registry.node_ahead(path, registration.grant) {
        tokio::select! {
            biased;
            () = ahead.may_go() => {}
            was_gone = was_gone(registration, path), if is_unlisted => return found_gone(registry, path, was_gone),
        }
        let handed_over = tokio::select! {
            biased;
            handed_over = ahead.gone() => handed_over,
            gone = is_gone_unsaid(registration, path) => return found_gone(registry, path, gone),
        };
        return Ok(NodeNews { came_at: Some(SystemClock.now()), handed_over });
    }
    let watch = registration.session.watch_node(path);
    tokio::select! {
        biased;
        changed = watch.changed() => {
            changed.map(|is_news| NodeNews { came_at: is_news.then(|| SystemClock.now()), handed_over: None })
        }
        // A look at the one node costs little, where there is no room for one more watch. What was to wake us may have been lost.
        gone = is_gone_for_all(registration, path, &watch) => gone.map(|()| NodeNews::default()),
    }
}

/// Tells everybody of this process who waits for a node of its own that one of them has found it gone: all of them list at one moment then,
/// and share one listing.
fn found_gone(registry: &Registry, path: &str, found: Result<(), Failure>) -> Result<NodeNews, Failure> {
    found?;
    registry.found_gone(path);
    Ok(NodeNews::default())
}

/// Looks at one node now and then, unless another one of those who watch it has looked, until it is gone. Then all of them are told.
async fn is_gone_for_all(registration: &Registration, path: &str, watch: &NodeWatch) -> Result<(), Failure> {
    let poller = registration.session.pollers.begin();
    loop {
        let look = watch.next_look(POLL_INTERVAL, &poller).await;
        if !is_there(registration, path).await? {
            watch.found_gone();
            return Ok(());
        }
        look.carried_through();
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

/// Looks now and then at a node of this process that may go, until it is gone.
async fn is_gone_unsaid(registration: &Registration, path: &str) -> Result<(), Failure> {
    let poller = registration.session.pollers.begin();
    is_gone(registration, path, &poller).await
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use lock_core::driver::{Attempt, Kind};
    use lock_core::{GrantId, Owner};
    use lock_testkit::testing::{PROMPTLY, installed, soon};
    use lock_testkit_servers::zookeeper::ZooKeeperServer;

    use super::*;
    use crate::client::ClientCrate;
    use crate::config::ZkConfig;
    use crate::connect::connect;
    use crate::session::SessionAcquirer;

    /// Each call is polled once, which sends its request.
    #[tokio::test]
    async fn whoever_waits_for_a_node_of_its_process_goes_on_though_the_call_that_ended_it_is_kept_without_being_polled()
     {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let backend = connect(&ZkConfig::new(server.url()), ClientCrate::ZookeeperClient).await.unwrap();
        let (session, releaser) = (backend.sessions.current().await, &backend.releaser);
        for what in ["a release", "a cancellation", "a try that withdraws"] {
            let attempt = Attempt::new(what.into(), Kind::Mutex, Owner::new(), Duration::from_secs(10)).unwrap();
            assert!(backend.acquirer.try_in(&session, &attempt).await.unwrap().is_some());
            let holder = backend.registry.get(attempt.id).unwrap();
            let lock = &holder.lock;
            let name = holder.node().unwrap().path.rsplit_once('/').unwrap().1.to_owned();
            let node = lock.contender(&lock.directory, name).unwrap();
            let waiter = backend.registry.register(GrantId::random().unwrap(), &session, lock.clone());
            let mut waiting = pin!(wait_for_node(&backend.registry, &waiter, &node, false));
            assert!((&mut waiting).now_or_never().is_none());
            let mut call: BoxFuture<'_, bool> = match what {
                "a release" => Box::pin(releaser.release(&attempt).map(|outcome| outcome.is_ok())),
                "a cancellation" => Box::pin(releaser.cancel(&attempt).map(|outcome| outcome.is_ok())),
                _ => Box::pin(releaser.withdraw(&holder).map(|outcome| outcome.is_ok())),
            };
            assert!((&mut call).now_or_never().is_none(), "{what} was answered at once");
            let news = soon(what, PROMPTLY, waiting).await.unwrap();
            assert!(news.came_at.is_none() && news.handed_over.is_none(), "{what}: {news:?}");
            assert!(call.await, "{what}");
        }
    }
}
