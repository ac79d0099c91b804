//! Sessions that are stolen, outlived by their servers, and kept over a restart.

use std::time::Instant;

use lock_zk::{LossReason, SessionState};

use crate::support::{PROMPTLY, SESSION, client, eventually, lease, ms, nodes, server, soon, steal};

#[tokio::test]
async fn a_holder_is_told_that_its_session_is_gone_and_its_client_goes_on() {
    let Some(server) = server().await else { return };
    let (a, b, truth) =
        (client(server.url(), SESSION).await, client(server.url(), SESSION).await, server.client().await.unwrap());
    let held = a.mutex("stolen").lock().await.unwrap();
    let other = b.mutex("stolen");
    let waiting = tokio::spawn(async move { other.lock().await });
    eventually("two in line", PROMPTLY, async || nodes(&truth, "stolen").await.len() == 2).await;
    let first = nodes(&truth, "stolen").await.remove(0);
    steal(&server, &truth, &first).await;
    let next = soon("the waiter is granted", PROMPTLY, waiting).await.unwrap().unwrap();
    let reason = soon("the holder is told", PROMPTLY, held.lost()).await;
    assert_eq!(reason, LossReason::SessionExpired);
    assert!(!held.is_held() && next.is_held());
    assert!(next.fencing_token() > held.fencing_token());
    next.release().await.unwrap();
    // A new session, by itself.
    let again = soon("the client takes it again", PROMPTLY, a.mutex("stolen").lock()).await.unwrap();
    again.release().await.unwrap();
    eventually("connected", PROMPTLY, async || a.session_state() == SessionState::Connected).await;
    drop(held);
    eventually("nothing is left", PROMPTLY, async || nodes(&truth, "stolen").await.is_empty()).await;
}

#[tokio::test]
async fn a_waiter_whose_session_is_gone_stands_in_line_again() {
    let Some(server) = server().await else { return };
    let (a, b, truth) =
        (client(server.url(), SESSION).await, client(server.url(), SESSION).await, server.client().await.unwrap());
    let held = a.mutex("waited").lock().await.unwrap();
    let other = b.mutex("waited");
    let waiting = tokio::spawn(async move { other.lock().await });
    eventually("two in line", PROMPTLY, async || nodes(&truth, "waited").await.len() == 2).await;
    let before = nodes(&truth, "waited").await.remove(1);
    steal(&server, &truth, &before).await;
    eventually("the waiter has a new node", PROMPTLY, async || {
        let line = nodes(&truth, "waited").await;
        line.len() == 2 && line[1] != before
    })
    .await;
    assert!(!waiting.is_finished(), "granted although somebody holds it");
    held.release().await.unwrap();
    let next = soon("the waiter is granted", PROMPTLY, waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_restart_within_the_session_costs_nothing() {
    let Some(server) = server().await else { return };
    let long = ms(8000);
    let (a, b, truth) =
        (client(server.url(), long).await, client(server.url(), long).await, server.client().await.unwrap());
    let held = a.mutex("restart").with_ttl(ms(8000)).lock().await.unwrap();
    let other = b.mutex("restart");
    let waiting = tokio::spawn(async move { other.lock().await });
    eventually("two in line", PROMPTLY, async || nodes(&truth, "restart").await.len() == 2).await;
    drop(truth);
    server.restart().await.unwrap();
    let truth = server.client().await.unwrap();
    assert_eq!(nodes(&truth, "restart").await.len(), 2, "the waiter's place was lost");
    eventually("connected", PROMPTLY, async || a.session_state() == SessionState::Connected).await;
    assert!(held.is_held() && !waiting.is_finished());
    soon("the release", PROMPTLY, held.release()).await.unwrap();
    let next = soon("the waiter is granted", PROMPTLY, waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_of_a_frozen_server_does_not_believe_longer_than_its_session_lasts() {
    let Some(server) = server().await else { return };
    let a = client(server.url(), SESSION).await;
    let held = a.mutex("frozen").with_lease(lease()).lock().await.unwrap();
    server.stop().unwrap();
    let stopped = Instant::now();
    soon("the holder is told", PROMPTLY, held.lost()).await;
    assert!(!held.is_held() && stopped.elapsed() <= SESSION, "believed for {:?}", stopped.elapsed());
    eventually("the loss of the session is seen", PROMPTLY, async || a.session_state() == SessionState::Lost).await;
    server.cont().unwrap();
    let again = soon("the client takes it again", PROMPTLY, a.mutex("frozen").lock()).await.unwrap();
    again.release().await.unwrap();
}

#[tokio::test]
async fn a_beat_is_agreed_upon_by_a_quorum() {
    let Some(server) = server().await else { return };
    let _idle = client(server.url(), SESSION).await;
    let committed = async || {
        let said = server.ask("srvr").await.unwrap();
        said.lines().find_map(|line| line.strip_prefix("Zxid: ")).unwrap().to_owned()
    };
    let before = committed().await;
    // A refused write is a transaction of its own; a read or a ping is none.
    eventually("an idle client's beat is a transaction", PROMPTLY, async || committed().await != before).await;
}
