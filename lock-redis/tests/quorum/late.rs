//! Late requests: undos and copies of earlier rounds (C-M23).

use lock_redis::Mutex;

use crate::servers::{ALL, GIVE, PROMPTLY, Servers, TAKE, about_time, eventually, key, long, ms};

const NONCE: &str = "00112233445566778899aabbccddeeff";

#[test]
fn the_slow_undo_of_a_failed_attempt_does_not_free_the_next_one() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        let locks = servers.hasty_client().await;
        let mutex = locks.mutex("late").with_lease(long());
        servers.hold_everywhere(&mutex).await.release().await.unwrap();
        servers.have_nothing_left(ALL).await;
        // Two are granted, one is somebody else's, two answer later: no majority.
        servers.run(2, &["SET", &key("late"), "foreign", "NX", "PX", "60000"]).await;
        servers.write_down().await;
        servers.stop(&[3, 4]);
        assert!(mutex.try_lock().await.unwrap().is_none(), "granted without a majority");
        let first = servers.written(0, TAKE).await[0][2].clone();
        assert_eq!(servers.held(0, "late").await, None);
        assert_eq!(servers.held(1, "late").await, None);
        servers.run(2, &["DEL", &key("late")]).await;
        // At once, while the undo of the first attempt has not arrived where it is slow.
        let held = mutex.try_lock().await.unwrap().unwrap();
        servers.cont(&[3, 4]);
        // The first attempt is gone everywhere, and the second one is nowhere freed by its undo.
        for i in [3, 4] {
            eventually("the first attempt is gone", ms(8000), async || {
                let left = servers.held(i, "late").await;
                left.is_none_or(|left| left.starts_with(&held.grant_id().to_string())).then_some(())
            })
            .await;
            eventually("it was undone", PROMPTLY, async || {
                servers.written(i, GIVE).await.iter().any(|give| give[3] == first)
            })
            .await;
        }
        let on = servers.holding(ALL, "late", held.grant_id()).await;
        assert!(on.starts_with(&[0, 1, 2]), "held on {on:?}");
        assert!(held.is_held());
        held.release().await.unwrap();
        servers.have_nothing_left(ALL).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_frees_only_rounds_before_it_and_a_late_copy_makes_nothing_older_or_shorter() {
    let Some(servers) = Servers::start().await else { return };
    let lock = key("late");
    let (forced, waiters) = (format!("{lock}:x"), format!("{lock}:w"));
    let take = async |round: &str, ttl: &str| {
        let take = ["EVAL", TAKE, "2", &lock, &waiters, NONCE, round, ttl, "{}", "", "0"];
        servers.run(0, &take).await.as_text().unwrap()
    };
    let give = async |round: &str| {
        let give = ["EVAL", GIVE, "3", &lock, &forced, &waiters, NONCE, round, "", "", "", "0", ""];
        servers.run(0, &give).await.as_text().unwrap()
    };
    let left = async || servers.run(0, &["PTTL", &lock]).await.as_int().unwrap();
    assert_eq!(take("100", "1000").await, format!("{NONCE}+"));
    // The next round comes before the undo of the one before.
    assert_eq!(take("200", "60000").await, format!("{NONCE}+"));
    assert!(left().await > 50_000);
    assert_eq!(give("100").await, format!("{NONCE}-"), "the undo of an earlier round");
    // Late copies of both.
    take("100", "1000").await;
    assert!(left().await > 50_000, "a late copy shortened the lease");
    assert_eq!(give("199").await, format!("{NONCE}-"), "a late copy made the entry older");
    assert_eq!(give("200").await, format!("{NONCE}+0"));
    servers.have_nothing_left(&[0]).await;
}

/// A lock that somebody else has on the first three servers; all five know the client.
async fn refused_by_three(servers: &Servers) -> Mutex {
    let mutex = servers.client().await.mutex("late").with_lease(long());
    servers.hold_everywhere(&mutex).await.release().await.unwrap();
    for i in [0, 1, 2] {
        servers.run(i, &["SET", &key("late"), "foreign", "PX", "60000"]).await;
    }
    mutex
}

#[tokio::test(flavor = "multi_thread")]
async fn no_undo_is_overtaken_where_the_scripts_are_new() {
    let Some(servers) = Servers::start().await else { return };
    let mutex = refused_by_three(&servers).await;
    for _ in 0..20 {
        for i in [3, 4] {
            servers.run(i, &["SCRIPT", "FLUSH"]).await;
        }
        servers.stop(&[3, 4]);
        assert!(mutex.try_lock().await.unwrap().is_none());
        servers.cont(&[3, 4]);
        servers.have_nothing_left(&[3, 4]).await;
    }
}

/// They know the undo, but not the request, when both come: whoever sent that again would leave an entry behind its undo.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_over_is_not_sent_again_to_servers_that_did_not_know_its_script() {
    let Some(servers) = Servers::start().await else { return };
    let mutex = refused_by_three(&servers).await;
    for _ in 0..5 {
        for i in [3, 4] {
            servers.run(i, &["SCRIPT", "FLUSH"]).await;
            servers.run(i, &["SCRIPT", "LOAD", GIVE]).await;
        }
        servers.stop(&[3, 4]);
        assert!(mutex.try_lock().await.unwrap().is_none());
        servers.cont(&[3, 4]);
        servers.have_nothing_left(&[3, 4]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_at_servers_that_have_forgotten_their_scripts_is_granted_and_released() {
    let Some(servers) = Servers::start().await else { return };
    let locks = servers.client().await;
    let mutex = locks.mutex("late").with_lease(long());
    servers.hold_everywhere(&mutex).await.release().await.unwrap();
    for _ in 0..5 {
        for i in ALL {
            servers.run(*i, &["SCRIPT", "FLUSH"]).await;
        }
        let held = mutex.try_lock().await.unwrap().expect("nobody else holds it");
        for i in ALL {
            servers.run(*i, &["SCRIPT", "FLUSH"]).await;
        }
        held.release().await.unwrap();
        servers.have_nothing_left(ALL).await;
    }
}
