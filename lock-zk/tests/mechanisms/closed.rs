//! A client that is closed with its session.

use lock_zk::{ErrorKind, LossReason, SessionState};

use crate::support::{LASTING, PROMPTLY, client, eventually, fails, nodes, server, soon};

#[tokio::test]
async fn a_session_that_is_closed_frees_at_once_whatever_was_forgotten() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    std::mem::forget(locks.mutex("forgotten").lock().await.unwrap());
    let held = locks.mutex("held").lock().await.unwrap();
    soon("the end", PROMPTLY, locks.close_session()).await.unwrap();
    assert!(!held.is_held());
    assert_eq!(soon("the holder is told", PROMPTLY, held.lost()).await, LossReason::SessionExpired);
    eventually("free long before the session would have ended", PROMPTLY, async || {
        nodes(&truth, "forgotten").await.is_empty() && nodes(&truth, "held").await.is_empty()
    })
    .await;
    assert_eq!(locks.session_state(), SessionState::Lost);
    fails(locks.mutex("forgotten").try_lock().await, ErrorKind::Closed);
    fails(locks.mutex("forgotten").inspect().await, ErrorKind::Closed);
    soon("another end", PROMPTLY, locks.close_session()).await.unwrap();
}
