//! Outcomes that are unknown, and stay so.

use lock_redis::{ClientOptions, Error, ErrorKind, Mutex};
use lock_testkit::proxy::{Direction, LinkFault, Toxic};

use crate::servers::{PROMPTLY, Servers, configured, eventually, hasty, key, long, ms};

/// The requests reach the servers and are not answered; later on nothing can be sent any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_may_have_been_granted_is_not_told_as_definite() {
    let Some(servers) = Servers::start().await else { return };
    let locks = servers.hasty_client().await;
    servers.hold_everywhere(&locks.mutex("unknown")).await.release().await.unwrap();
    let silent = [0, 1, 2];
    servers.stop(&silent);
    let mutex = locks.mutex("unknown");
    let wait = tokio::spawn(async move { mutex.lock().await });
    // The two others are asked as well: so the silent ones have been.
    eventually("the wait has begun", ms(5000), async || servers.held(4, "unknown").await.map(drop)).await;
    // Too few have answered in time, so what they granted is released: the silent ones were asked, and have not answered.
    eventually("the first round is over", ms(5000), async || servers.held(4, "unknown").await.is_none().then_some(()))
        .await;
    servers.kill(&silent);
    let error = wait.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert!(!error.is_definite());
}

/// One of three servers grants, another one says that it is held, the third one takes the request without an answer; then the first
/// one is gone before it is told to undo its grant. Later rounds find too few servers.
async fn a_majority_is_left_taken(ask: impl AsyncFnOnce(Mutex) -> Error) {
    let Some(servers) = Servers::start().await else { return };
    let (links, config) = servers.behind_proxies(3);
    let options = ClientOptions::default().with_patience(hasty().patience);
    let locks = configured(config.with_client(options)).await;
    let mutex = locks.mutex("left").with_lease(long());
    // Every server knows every script.
    eventually("all three hold the lock", PROMPTLY, async || {
        let held = mutex.lock().await.unwrap();
        let on_all = servers.holding(&[0, 1, 2], "left", held.grant_id()).await.len() == 3;
        held.release().await.unwrap();
        on_all.then_some(())
    })
    .await;
    servers.have_nothing_left(&[0, 1, 2]).await;
    assert!(servers.run(1, &["SET", &key("left"), "another", "PX", "60000"]).await.is_ok());
    let faults = [
        links[0].inject(LinkFault::new(Toxic::Refuse, Direction::Both)),
        links[2].inject(LinkFault::new(Toxic::Refuse, Direction::Both)),
        links[0].inject(LinkFault::new(Toxic::Reset, Direction::ToServer).on_request(2, key("left"))),
        links[2].inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, key("left"))),
    ];
    let error = ask(mutex).await;
    let (first, third) = (servers.held(0, "left").await, servers.held(2, "left").await);
    assert!(first.is_some() && third.is_some(), "the faults missed: {first:?} {third:?}: {error}");
    assert!(!error.is_definite(), "two of three have it: {error}");
    drop(faults);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_whose_earlier_round_left_a_majority_taken_is_not_told_as_definite() {
    a_majority_is_left_taken(async |mutex| mutex.try_lock().await.unwrap_err()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_whose_earlier_round_left_a_majority_taken_is_not_told_as_definite() {
    // Until its patience is over, or its deadline.
    a_majority_is_left_taken(async |mutex| mutex.lock().await.unwrap_err()).await;
    a_majority_is_left_taken(async |mutex| mutex.try_lock_for(ms(900)).await.unwrap_err()).await;
}
