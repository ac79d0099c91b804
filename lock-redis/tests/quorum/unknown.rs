//! Outcomes that are unknown, and stay so.

use lock_redis::ErrorKind;

use crate::servers::{Servers, eventually, ms};

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
    // Too few have answered in time, so the answers are given back: the silent ones were asked, and have not answered.
    eventually("the first round is over", ms(5000), async || servers.held(4, "unknown").await.is_none().then_some(()))
        .await;
    servers.kill(&silent);
    let error = wait.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert!(!error.is_definite());
}
