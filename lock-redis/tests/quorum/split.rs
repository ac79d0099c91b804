//! Votes that are split: others try to get the lock at the same time, while a minority of the servers is down.

use std::time::Duration;

use futures_util::FutureExt;
use lock_core::clock::{Clock, SystemClock};
use lock_redis::{ClientOptions, ErrorKind, Phase, QuorumLocks, Retry};

use crate::servers::{ALL, PROMPTLY, SHORT, Servers, TAKE, about_time, eventually, hasty, key, long, ms};

/// Leaves what another's attempt would leave at these servers, for this long.
async fn others_try(servers: &Servers, at: &[(usize, char)], lasts: Duration) {
    let ttl = lasts.as_millis().to_string();
    for (server, who) in at {
        let entry = format!("{}:1:1:{{}}", who.to_string().repeat(32));
        servers.run(*server, &["SET", &key("split"), &entry, "PX", &ttl]).await;
    }
}

async fn connect(servers: &Servers, options: ClientOptions) -> QuorumLocks {
    QuorumLocks::connect_with(servers.config().with_client(options)).await.unwrap()
}

#[test]
fn a_lock_that_nobody_holds_is_not_said_to_be_held() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        let locks = connect(&servers, hasty()).await;
        let mutex = locks.mutex("split").with_lease(long());
        servers.hold_everywhere(&mutex).await.release().await.unwrap();
        servers.kill(&[4]);
        // Neither has a majority, whatever the fifth says.
        others_try(&servers, &[(0, 'a'), (1, 'b')], PROMPTLY * 6).await;
        for outcome in [mutex.try_lock().await, mutex.try_lock_for(hasty().op_timeout).await] {
            let error = outcome.unwrap_err();
            assert_eq!(
                (error.kind(), error.phase(), error.retry()),
                (ErrorKind::Unavailable, Phase::Acquire, Retry::Later)
            );
            assert!(error.is_definite() && error.to_string().contains("nobody holds the lock"), "{error}");
            assert_eq!((error.name(), error.backend()), (Some("split"), Some("redis-quorum")));
        }
        servers.have_nothing_left(&[2, 3]).await;
        // One that may be a majority with the fifth is said to hold.
        others_try(&servers, &[(0, 'a'), (1, 'a')], PROMPTLY * 6).await;
        assert!(mutex.try_lock().await.unwrap().is_none());
        servers.run(0, &["DEL", &key("split")]).await;
        mutex.try_lock().await.unwrap().expect("a majority is free").release().await.unwrap();
        servers.have_nothing_left(&[0, 2, 3]).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn another_one_that_only_tries_is_not_taken_for_a_holder_while_servers_are_down() {
    let Some(servers) = Servers::start().await else { return };
    let mut patient = ClientOptions::default();
    patient.op_timeout = PROMPTLY;
    let mutex = connect(&servers, patient).await.mutex("split").with_lease(long());
    servers.hold_everywhere(&mutex).await.release().await.unwrap();
    servers.kill(&[3, 4]);
    eventually("it is known that they are down", PROMPTLY, async || {
        // Granted by exactly the three.
        mutex.try_lock().await.unwrap()?.release().await.ok()
    })
    .await;
    // With the two that are down it could be a majority. It is over long before the operation timeout.
    others_try(&servers, &[(0, 'a')], PROMPTLY / 20).await;
    let held = mutex.try_lock().await.unwrap().expect("nobody held it");
    held.release().await.unwrap();
    servers.have_nothing_left(&[0, 1, 2]).await;
}

#[test]
fn a_try_that_is_not_decided_begins_again_and_again_but_no_round_that_has_no_time() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        let mutex = connect(&servers, hasty()).await.mutex("split").with_lease(long());
        servers.hold_everywhere(&mutex).await.release().await.unwrap();
        servers.have_nothing_left(ALL).await;
        others_try(&servers, &[(0, 'a'), (1, 'a'), (2, 'b'), (3, 'b')], PROMPTLY * 6).await;
        servers.write_down().await;
        let mut trying = Box::pin(mutex.try_lock());
        assert!(trying.as_mut().now_or_never().is_none(), "one poll cannot be enough");
        // Its own operation timeout is over no later.
        let until = SystemClock.now().plus(SHORT);
        assert_eq!(trying.await.unwrap_err().kind(), ErrorKind::Unavailable);
        // A round is named by when it began, in µs of the client's clock.
        let rounds: Vec<u64> = servers.written(4, TAKE).await.iter().map(|take| take[3].parse().unwrap()).collect();
        assert!(rounds.len() > 1 && rounds.is_sorted(), "{rounds:?}");
        let latest = until.since_origin() - ms(100);
        assert!(
            rounds.iter().all(|began| u128::from(*began) < latest.as_micros()),
            "{rounds:?}, not before {latest:?}"
        );
        servers.have_nothing_left(&[4]).await;
    });
}
