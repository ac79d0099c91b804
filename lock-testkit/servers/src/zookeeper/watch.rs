//! Watches: what a server tells without being asked.

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::jute::JuteReader;

/// The number of changes that may wait to be heard; a receiver that misses one looks again.
pub(super) const MOST: usize = 64;

/// The paths of nodes that have changed, for as long as there is the connection.
pub(super) type Changes = broadcast::Receiver<String>;

/// The number that the server's own messages have in place of a request's.
const UNASKED: i32 = -1;

/// Tells once when a node that is watched may have changed.
#[derive(Debug)]
pub struct Change {
    path: String,
    changes: Changes,
}

impl Change {
    pub(super) fn new(path: &str, changes: Changes) -> Self {
        Self { path: path.to_owned(), changes }
    }

    /// Waits until the node has changed, or nobody can tell any more: with the connection, the watch is gone.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn happened(&mut self) {
        loop {
            match self.changes.recv().await {
                Ok(path) if path != self.path => {}
                Ok(_) | Err(RecvError::Lagged(_) | RecvError::Closed) => return,
            }
        }
    }
}

/// The path that the server says to have changed; `None` if the frame answers a request.
pub(super) fn path_of(frame: &[u8]) -> Option<String> {
    let mut reader = JuteReader::new(frame);
    let (xid, _zxid, _error) = (reader.int().ok()?, reader.long().ok()?, reader.int().ok()?);
    if xid != UNASKED {
        return None;
    }
    let (_what, _state) = (reader.int().ok()?, reader.int().ok()?);
    reader.text().ok()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::super::jute::Writer;
    use super::*;

    fn message(xid: i32, path: &str) -> Vec<u8> {
        Writer::default().int(xid).long(-1).int(0).int(2).int(3).text(path).frame()[4..].to_vec()
    }

    #[test]
    fn only_what_nobody_asked_for_is_a_change() {
        assert_eq!(path_of(&message(UNASKED, "/a")).as_deref(), Some("/a"));
        assert_eq!(path_of(&message(7, "/a")), None);
        assert_eq!(path_of(&[0, 0]), None);
    }

    #[tokio::test]
    async fn a_change_is_of_one_node_or_the_end_of_all() {
        let (changed, changes) = broadcast::channel(MOST);
        let (mut of_a, mut of_b) = (Change::new("/a", changes.resubscribe()), Change::new("/b", changes));
        changed.send("/a".to_owned()).unwrap();
        of_a.happened().await;
        assert!(of_b.happened().now_or_never().is_none());
        drop(changed);
        of_b.happened().await;
    }
}
