//! Mutexes that were taken by one client and go on in another, when not every server takes part.

use lock_redis::ErrorKind;

use crate::servers::{ALL, Servers, eventually, key, long, ms};

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_is_enough_to_go_on() {
    let Some(servers) = Servers::start().await else { return };
    let (web, worker) = (servers.client().await, servers.client().await);
    let held = servers.hold_everywhere(&web.mutex("adoption").with_lease(long())).await;
    let before = held.grant_id();
    let detached = held.detach().await.unwrap();
    servers.kill(&[3]);
    servers.run(4, &["DEL", &key("adoption")]).await;
    let adopted = worker.adopt(&detached).await.unwrap();
    assert_eq!(servers.holding(&[0, 1, 2, 4], "adoption", adopted.grant_id()).await, [0, 1, 2]);
    assert!(servers.holding(&[0, 1, 2, 4], "adoption", before).await.is_empty());
    let late = web.adopt(&detached).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::NotHeld, "{late}");
    assert!(adopted.is_held() && web.mutex("adoption").try_lock().await.unwrap().is_none());
    adopted.release().await.unwrap();
    servers.have_nothing_left(&[0, 1, 2, 4]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_it_is_unknown_and_taken_back() {
    let Some(servers) = Servers::start().await else { return };
    let (web, worker) = (servers.client().await, servers.hasty_client().await);
    let detached = servers.hold_everywhere(&web.mutex("adoption").with_lease(long())).await.detach().await.unwrap();
    // One has lost it, two stand still: neither three have it, nor have three lost it.
    servers.run(0, &["DEL", &key("adoption")]).await;
    servers.stop(&[1, 2]);
    let error = worker.adopt(&detached).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    servers.cont(&[1, 2]);
    // Nobody knows the id under which it is held by now: it must not last for its whole lease.
    let next = eventually("it is free", ms(8000), async || web.mutex("adoption").try_lock().await.unwrap()).await;
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_that_has_lost_it_is_a_definite_no() {
    let Some(servers) = Servers::start().await else { return };
    let (web, worker) = (servers.client().await, servers.client().await);
    let detached = servers.hold_everywhere(&web.mutex("adoption").with_lease(long())).await.detach().await.unwrap();
    for i in [0, 1, 2] {
        servers.run(i, &["DEL", &key("adoption")]).await;
    }
    let error = worker.adopt(&detached).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotHeld, "{error}");
    let free = web.mutex("adoption").lock().await.unwrap();
    free.release().await.unwrap();
    // What a minority had of it was taken back.
    servers.have_nothing_left(ALL).await;
}
