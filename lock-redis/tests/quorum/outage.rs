//! Servers that are down: a minority costs nothing but its votes, a majority is a typed error (C-M21).

use std::time::Instant;

use lock_redis::{ClientOptions, ErrorKind, Phase, QuorumLocks};

use crate::servers::{SLACK, Servers, about_time, configured, eventually, hasty, long, ms, obtain, often, renewed};

#[tokio::test(flavor = "multi_thread")]
async fn with_two_of_five_down_everything_works_and_they_are_used_again_when_they_are_back() {
    let Some(servers) = Servers::start().await else { return };
    servers.kill(&[0, 3]);
    // Connected while they are down, and before.
    let (a, b) = (servers.client().await, servers.client().await);
    let held = a.mutex("outage").with_lease(often()).lock().await.unwrap();
    assert_eq!(servers.holding(&[1, 2, 4], "outage", held.grant_id()).await.len(), 3);
    assert!(b.mutex("outage").try_lock().await.unwrap().is_none());
    renewed(&held, 4).await;
    held.extend(ms(10_000)).await.unwrap();
    assert_eq!(b.mutex("outage").inspect().await.unwrap().holders[0].grant, Some(held.grant_id()));
    held.release().await.unwrap();
    let held = obtain(&b, "outage").await;
    assert!(a.mutex("outage").force_release(held.grant_id(), "the test asks").await.unwrap());
    drop(held);
    // Back, empty; then all five are asked again.
    servers.restart(&[0, 3]).await;
    servers.hold_everywhere(&a.mutex("outage")).await.release().await.unwrap();
}

#[test]
fn with_three_of_five_down_there_is_a_typed_error_and_nothing_is_left_on_the_living() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        let options = ClientOptions::default().with_patience(hasty().patience);
        let locks = configured(servers.config().with_client(options.clone())).await;
        let mutex = locks.mutex("outage").with_lease(long());
        let other = locks.mutex("other").with_lease(long()).lock().await.unwrap();
        servers.kill(&[1, 2, 3]);
        // The first one on the connections that break under it, the later ones without any.
        for wait in [0, 0, 0, 200] {
            let began = Instant::now();
            let error = mutex.try_lock_for(ms(wait)).await.unwrap_err();
            assert!(began.elapsed() < options.op_timeout + ms(wait) + SLACK, "took {:?}", began.elapsed());
            assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
            assert!(matches!(error.phase(), Phase::Acquire), "{error}");
            assert_eq!((error.name(), error.backend()), (Some("outage"), Some("redis-quorum")));
            // What is missing is told, server by server.
            assert!(error.to_string().contains("3 of 5 servers gave no answer, 3 must answer"), "{error}");
            for i in [1, 2, 3] {
                assert!(error.to_string().contains(&servers.each[i].port().unwrap().to_string()), "{error}");
            }
        }
        let began = Instant::now();
        assert!(mutex.lock().await.is_err());
        let longest = options.patience + options.op_timeout + SLACK;
        assert!(began.elapsed() < longest, "patience took {:?}", began.elapsed());
        assert_eq!(mutex.inspect().await.unwrap_err().phase(), Phase::Inspect);
        // Unknown is no loss: two servers still have it, and others cannot take it.
        assert!(other.extend(ms(70_000)).await.is_err() && other.is_held());
        assert_eq!(other.release().await.unwrap_err().kind(), ErrorKind::Indeterminate);
        servers.have_nothing_left(&[0, 4]).await;
        // The same client works again, in part with the servers that have forgotten.
        servers.restart(&[1]).await;
        obtain(&locks, "outage").await.release().await.unwrap();
    });
}

#[test]
fn a_lock_that_is_freed_by_force_at_two_of_five_is_not_told_as_untouched() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        let locks = servers.hasty_client().await;
        let mutex = locks.mutex("outage").with_lease(long());
        let held = mutex.lock().await.unwrap();
        servers.kill(&[1, 2, 3]);
        // Until the client knows that they are gone.
        assert!(mutex.inspect().await.is_err());
        let forced = mutex.force_release(held.grant_id(), "the test asks").await.unwrap_err();
        assert_eq!((forced.kind(), forced.is_definite()), (ErrorKind::Indeterminate, false), "{forced}");
        assert_eq!(servers.holding(&[0, 4], "outage", held.grant_id()).await, [] as [usize; 0]);
    });
}

#[test]
fn connecting_needs_a_majority_and_leaves_no_connection_without_one() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        servers.kill(&[0, 1]);
        servers.stop(&[2]);
        // A dial takes 1 s at most: the second one of the frozen server is under way when the client is given up.
        let mut options = hasty();
        options.op_timeout = ms(1500);
        let config = servers.config().with_client(options);
        let began = Instant::now();
        let error = QuorumLocks::connect_with(config.clone()).await.unwrap_err();
        assert!(began.elapsed() < ms(1500) + SLACK, "took {:?}", began.elapsed());
        assert_eq!((error.kind(), error.phase()), (ErrorKind::Unavailable, Phase::Connect), "{error}");
        assert!(error.to_string().contains("3 of 5 servers gave no answer, 3 must answer"), "{error}");
        servers.cont(&[2]);
        let locks = QuorumLocks::connect_with(config).await.unwrap();
        let held = locks.mutex("outage").lock().await.unwrap();
        drop(locks);
        drop(held);
        for i in [2, 3, 4] {
            eventually("every connection is closed and nothing is left", ms(5000), async || {
                let clients = servers.run(i, &["CLIENT", "LIST"]).await.as_text().unwrap().lines().count();
                let keys = servers.run(i, &["DBSIZE"]).await.as_int().unwrap();
                (clients == 1 && keys == 0).then_some(())
            })
            .await;
        }
    });
}
