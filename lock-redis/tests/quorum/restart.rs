//! Servers that come back without their data: the one way in which a quorum can have two holders, and the rule against it.

use lock_core::driver::Backend;
use lock_redis::{ErrorKind, LossReason, Phase, QuorumLocks};

use crate::servers::{PROMPTLY, Servers, about_time, eventually, hasty, long, ms};

const LONGEST: std::time::Duration = ms(4000);

/// Waits until these servers have been up for longer than the longest TTL, as they tell it in whole seconds.
async fn are_old(servers: &Servers, which: &[usize]) {
    for i in which {
        eventually("the server is old", PROMPTLY, async || {
            let info = servers.run(*i, &["INFO", "server"]).await.as_text().unwrap();
            let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:")).unwrap();
            (uptime.parse::<u64>().unwrap() > LONGEST.as_secs()).then_some(())
        })
        .await;
    }
}

#[test]
fn servers_that_forgot_a_lock_cannot_grant_it_again_while_its_holder_believes_in_it() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        are_old(&servers, &[0, 1, 2, 3, 4]).await;
        let mut options = hasty();
        options.lease.ttl = LONGEST;
        let careful = servers.config().with_client(options);
        let mut careful_config = careful.clone();
        careful_config.young_servers = false;

        let holder = QuorumLocks::connect_with(careful_config.clone()).await.unwrap();
        let careful = QuorumLocks::connect_with(careful_config).await.unwrap();
        let careless = servers.hasty_client().await;
        let mutex = holder.mutex("restart");
        // Held by three, two of which are alone to know it after a crash of the third.
        servers.kill(&[3, 4]);
        let held = eventually("granted by the three", PROMPTLY, async || mutex.try_lock().await.ok().flatten()).await;
        servers.restart(&[2, 3, 4]).await;

        // Who counts every server finds a second majority.
        let second = eventually("granted by those who forgot", PROMPTLY, async || {
            careless.mutex("restart").with_lease(long()).try_lock().await.ok().flatten()
        })
        .await;
        assert!(held.is_held() && second.is_held(), "the servers that forgot did not grant it twice");
        second.release().await.unwrap();

        // Who counts only servers that are old enough gets it when nobody can believe in it any more.
        let refused = async || careful.mutex("restart").try_lock().await.unwrap_err();
        // The first ones find connections that are broken.
        let error = eventually("refused for their youth", ms(2000), async || {
            Some(refused().await).filter(|error| error.to_string().contains("may have forgotten"))
        });
        let error = error.await;
        assert_eq!((error.kind(), error.phase()), (ErrorKind::Unavailable, Phase::Acquire), "{error}");
        let next = eventually("granted when the servers are old enough", PROMPTLY, async || {
            let granted = careful.mutex("restart").try_lock().await.ok().flatten();
            assert!(granted.is_none() || !held.is_held(), "two holders");
            granted
        })
        .await;
        next.release().await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_majority_forgot_is_told_when_it_is_back_and_not_at_the_next_renewal() {
    let Some(servers) = Servers::start().await else { return };
    let locks = servers.client().await;
    let held = locks.mutex("restart").with_ttl(ms(300_000)).lock().await.unwrap();
    servers.kill(&[0, 1, 2]);
    servers.restart(&[0, 1, 2]).await;
    let reason = tokio::time::timeout(PROMPTLY, held.lost()).await.expect("told long before a renewal is due");
    assert_eq!(reason, LossReason::Taken);
}

#[test]
fn servers_that_have_just_started_are_waited_for_and_the_error_says_so() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        let mut config = servers.config().with_client(hasty()).with_longest_ttl(LONGEST);
        config.client.lease.ttl = ms(2000);
        config.young_servers = false;
        let error = QuorumLocks::connect_with(config.clone()).await.unwrap_err();
        assert_eq!((error.kind(), error.phase()), (ErrorKind::Unavailable, Phase::Connect), "{error}");
        assert!(error.to_string().contains("5 of 5 servers gave no answer"), "{error}");
        assert!(error.to_string().contains("may have forgotten"), "{error}");
        let connect = async || QuorumLocks::connect_with(config.clone()).await.ok();
        let locks = eventually("connected when they are old enough", PROMPTLY, connect).await;
        // A TTL for which the rule would not hold is refused, and so is an extension.
        let error = locks.mutex("restart").with_ttl(LONGEST + ms(1)).try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!(locks.backend().longest_ttl(), LONGEST, "a longer one is refused before the client counts on it");
        let held = locks.mutex("restart").with_ttl(LONGEST).lock().await.unwrap();
        assert_eq!(held.extend(LONGEST * 2).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(held.is_held());
        held.extend(LONGEST).await.unwrap();
        held.release().await.unwrap();
    });
}
