//! A node of this process that is at the servers, and the news of it for whoever waits for it here.
//!
//! All news come from the calls of whoever has the node. A call may be kept without being polled once its request is sent; then the servers carry
//! it out, and nobody here tells of that. So the call says beforehand that the node may go, and from then on the waiter also asks the servers.

use lock_core::GrantId;
use lock_core::clock::BootInstant;
use tokio::sync::watch;

/// A node of this process; dropped when it is gone, which wakes whoever waits for it here.
#[derive(Debug, Default)]
pub(super) struct LocalNode {
    news: watch::Sender<NodeState>,
    /// The attempt that waits right behind it, in this process.
    pub(super) next: Option<GrantId>,
}

/// Whatever is known here of a node's end.
#[derive(Debug, Default)]
struct NodeState {
    /// Whether a request that ends it is being sent, or was: its answer may never be told.
    may_go: bool,
    /// The attempt that is first now, and the sending of the request whose answer tells it so.
    handed_over: Option<(GrantId, BootInstant)>,
}

impl LocalNode {
    /// Tells whoever waits for it that a request which ends it is about to be sent.
    pub(super) fn may_go(&self) {
        self.news.send_if_modified(|state| !std::mem::replace(&mut state.may_go, true));
    }

    /// Notes which attempt is first when this node is gone, by a request that was sent at this instant.
    pub(super) fn hand_over(&self, first: GrantId, sent_at: BootInstant) {
        self.news.send_modify(|state| state.handed_over = Some((first, sent_at)));
    }

    /// Returns the news of it for an attempt that waits right behind it.
    pub(super) fn wait_behind(&mut self, waiter: GrantId) -> NodeAhead {
        self.next = Some(waiter);
        NodeAhead { news: self.news.subscribe(), waiter }
    }
}

/// A node of this process for which an attempt of this process waits.
#[derive(Debug)]
pub(crate) struct NodeAhead {
    news: watch::Receiver<NodeState>,
    waiter: GrantId,
}

impl NodeAhead {
    /// Resolves when the node may go, or is gone.
    pub(crate) async fn may_go(&mut self) {
        // An error says that it is gone.
        let _ = self.news.wait_for(|state| state.may_go).await;
    }

    /// Resolves when the node is gone. The output is the instant at which a hand-over to this waiter was sent, if that ended the node.
    pub(crate) async fn gone(&mut self) -> Option<BootInstant> {
        while self.news.changed().await.is_ok() {}
        // Somebody else may wait for this node whose own is not there any more.
        self.news.borrow().handed_over.filter(|(first, _)| *first == self.waiter).map(|(_, sent_at)| sent_at)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn whoever_comes_when_the_node_may_go_is_told_so_too_and_only_its_end_tells_that_it_is_gone() {
        let (mut node, waiter) = (LocalNode::default(), GrantId::random().unwrap());
        let mut early = node.wait_behind(waiter);
        assert!(early.may_go().now_or_never().is_none());
        node.may_go();
        let mut late = node.wait_behind(waiter);
        for ahead in [&mut early, &mut late] {
            assert!(ahead.may_go().now_or_never().is_some());
            assert!(ahead.gone().now_or_never().is_none(), "it is there");
        }
        node.hand_over(waiter, BootInstant::FAR_FUTURE);
        assert!(early.gone().now_or_never().is_none(), "it is there");
        drop(node);
        for ahead in [&mut early, &mut late] {
            assert_eq!(ahead.gone().now_or_never(), Some(Some(BootInstant::FAR_FUTURE)));
        }
    }

    #[test]
    fn the_end_of_a_node_that_nobody_has_announced_is_told() {
        let (mut node, [waiter, another]) = (LocalNode::default(), [(); 2].map(|()| GrantId::random().unwrap()));
        let mut ahead = node.wait_behind(waiter);
        node.hand_over(another, BootInstant::FAR_FUTURE);
        assert!(ahead.may_go().now_or_never().is_none());
        drop(node);
        assert!(ahead.may_go().now_or_never().is_some());
        assert_eq!(ahead.gone().now_or_never(), Some(None), "it was handed to another one");
    }
}
