//! Grants that replicas must have acknowledged.

use std::time::Duration;

use futures_util::future::join_all;
use lock_redis::multi::try_lock_all;
use lock_redis::{ClientOptions, ErrorKind, RedisConfig, RedisLocks};
use lock_testkit_servers::redis::{ClusterDeployment, RedisServer, SentinelDeployment};

use crate::support::{PROMPTLY, about_time, connect, eventually, installed, ms, obtain, say, soon};

/// The time that replicas may take. One that is there needs a millisecond; but it reports by itself only once a second.
const WITHIN: Duration = Duration::from_millis(1500);

async fn insisting(url: &str, replicas: u32) -> RedisLocks {
    RedisLocks::connect_with(RedisConfig::new(url).with_replicas(replicas, WITHIN)).await.unwrap()
}

async fn has(server: &RedisServer, name: &str) -> bool {
    say(server, &format!("EXISTS lock:mutex:{{{name}}}")).await.as_int() == Some(1)
}

/// Stops replicas, and lets them go on when it is dropped.
struct Stopped<'a>(Vec<&'a RedisServer>);

impl<'a> Stopped<'a> {
    fn now(servers: Vec<&'a RedisServer>) -> Self {
        servers.iter().for_each(|server| server.stop().unwrap());
        Self(servers)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|server| server.cont().unwrap());
    }
}

#[test]
fn of_several_locks_each_grant_has_its_replicas_or_none_counts() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let both = insisting(deployment.url(), 2).await;
        let master = deployment.master().await.unwrap();
        let replicas = || deployment.nodes().iter().filter(|node| node.address() != master.address());
        let three = || ["a", "b", "c"].map(|name| both.mutex(name));

        let held = try_lock_all(three()).await.unwrap().expect("nobody holds them");
        for (replica, name) in replicas().flat_map(|replica| ["a", "b", "c"].map(|name| (replica, name))) {
            assert!(has(replica, name).await, "acknowledged, but not there");
        }
        held.release().await.unwrap();

        let stopped = Stopped::now(replicas().take(1).collect());
        let refused = try_lock_all(three()).await.unwrap_err();
        assert_eq!((refused.kind(), refused.is_definite()), (ErrorKind::Unavailable, true), "{refused:?}");
        for name in ["a", "b", "c"] {
            assert!(!has(master, name).await, "{name} was not undone");
        }
        drop(stopped);
    });
}

#[test]
fn an_adoption_that_too_few_replicas_have_is_not_told_as_nothing() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let both = insisting(deployment.url(), 2).await;
        let master = deployment.master().await.unwrap();
        let detached = both.mutex("wait").lock().await.unwrap().detach().await.unwrap();
        let replica = deployment.nodes().iter().find(|node| node.address() != master.address());
        let stopped = Stopped::now(replica.into_iter().collect());
        let refused = both.adopt(&detached).await.unwrap_err();
        assert_eq!((refused.kind(), refused.is_definite()), (ErrorKind::Indeterminate, false), "{refused:?}");
        let cause = std::error::Error::source(&refused).expect("it has a cause").to_string();
        assert!(cause.contains("1 instead of 2 replicas"), "{cause}");
        // It was undone, and the message is worth nothing any more.
        assert!(!has(master, "wait").await);
        drop(stopped);
        assert_eq!(both.adopt(&detached).await.unwrap_err().kind(), ErrorKind::NotHeld);
    });
}

#[test]
fn a_grant_that_too_few_replicas_have_is_refused_and_undone() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let (both, one) = (insisting(deployment.url(), 2).await, insisting(deployment.url(), 1).await);
        let easy = connect(deployment.url()).await;
        let master = deployment.master().await.unwrap();
        let replicas = || deployment.nodes().iter().filter(|node| node.address() != master.address());

        let held = both.mutex("wait").lock().await.unwrap();
        for replica in replicas() {
            assert!(has(replica, "wait").await, "acknowledged, but not there");
        }
        held.release().await.unwrap();

        let stopped = Stopped::now(replicas().take(1).collect());
        one.mutex("wait").try_lock().await.unwrap().unwrap().release().await.unwrap();
        let refused = both.mutex("wait").try_lock().await.unwrap_err();
        assert_eq!((refused.kind(), refused.is_definite()), (ErrorKind::Unavailable, true), "{refused:?}");
        assert!(refused.to_string().contains("1 instead of 2 replicas"), "{refused}");
        assert!(!has(master, "wait").await, "it was undone");
        assert!(both.mutex("wait").try_lock_for(ms(300)).await.is_err());
        let free = async || (!has(master, "wait").await).then_some(());
        eventually("nothing is left of a refused wait", PROMPTLY, free).await;
        easy.mutex("wait").try_lock().await.unwrap().unwrap().release().await.unwrap();
        drop(stopped);
        obtain(&both, "wait", PROMPTLY).await.release().await.unwrap();
    });
}

/// A server's `timeout` and a proxy's reset end an idle connection likewise.
#[test]
fn a_connection_that_died_between_two_grants_fails_neither() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let both = insisting(deployment.url(), 2).await;
        obtain(&both, "wait", PROMPTLY).await.release().await.unwrap();
        let master = deployment.master().await.unwrap();
        let killed = say(master, "CLIENT KILL TYPE normal").await.as_int();
        assert!(killed.is_some_and(|killed| killed >= 2), "{killed:?} connections, and not those of the client");
        let mutex = both.mutex("wait");
        eventually("the link is back", PROMPTLY, async || mutex.inspect().await.ok()).await;
        let next = mutex.try_lock().await.unwrap().expect("nobody holds it");
        next.release().await.unwrap();
    });
}

#[test]
fn a_record_that_too_few_replicas_have_is_not_told_to_be_written() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let both = insisting(deployment.url(), 2).await;
        let master = deployment.master().await.unwrap();
        let replicas = || deployment.nodes().iter().filter(|node| node.address() != master.address());
        let recorded = both.recorded("wait").unwrap().with_ttl(PROMPTLY * 3);
        let held = recorded.lock().await.unwrap();
        held.write(b"everywhere").await.unwrap();
        for replica in replicas() {
            let there = say(replica, "EXISTS lock:mutex:{wait}:r").await;
            assert_eq!(there.as_int(), Some(1), "told to be written, but not there");
        }
        let stopped = Stopped::now(replicas().take(1).collect());
        let unknown = held.write(b"not everywhere").await.unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::Indeterminate, "{unknown:?}");
        drop(stopped);
        eventually("written again", PROMPTLY, async || held.write(b"again").await.ok()).await;
        held.release().await.unwrap();
    });
}

/// The runtime from which a grant was acknowledged first exists on, and nobody drives it.
#[test]
fn a_runtime_that_stands_still_keeps_no_grant_of_another_one_from_being_acknowledged() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let both = insisting(deployment.url(), 2).await;
        let elsewhere = both.clone();
        let standing = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                obtain(&elsewhere, "first", PROMPTLY).await.release().await.unwrap();
            });
            runtime
        });
        let standing = standing.await.unwrap();
        both.mutex("next").try_lock().await.unwrap().unwrap().release().await.unwrap();
        standing.shutdown_background();
    });
}

#[test]
fn a_lock_that_is_handed_over_counts_only_when_replicas_have_it_too() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let (easy, both) = (connect(deployment.url()).await, insisting(deployment.url(), 2).await);
        let master = deployment.master().await.unwrap();
        let queued = async || (say(master, "ZCARD lock:mutex:{wait}:q").await.as_int() == Some(1)).then_some(());
        let waiting = || {
            tokio::spawn({
                let mutex = both.mutex("wait");
                async move { mutex.lock().await }
            })
        };

        let held = easy.mutex("wait").lock().await.unwrap();
        let waiter = waiting();
        eventually("the waiter is in the queue", PROMPTLY, queued).await;
        held.release().await.unwrap();
        let next = soon("the waiter is granted", PROMPTLY, waiter).await.unwrap().unwrap();
        // Not only for the claim time, of which replicas know nothing more.
        assert!(next.remaining() > Duration::from_secs(5), "{:?}", next.remaining());
        next.release().await.unwrap();

        let held = easy.mutex("wait").lock().await.unwrap();
        let waiter = waiting();
        eventually("the waiter is in the queue", PROMPTLY, queued).await;
        let _stopped =
            Stopped::now(deployment.nodes().iter().filter(|node| node.address() != master.address()).collect());
        held.release().await.unwrap();
        let refused = soon("the waiter is refused", PROMPTLY, waiter).await.unwrap().unwrap_err();
        assert!(refused.to_string().contains("0 instead of 2 replicas"), "{refused}");
        let free = async || (!has(master, "wait").await).then_some(());
        eventually("nothing is left of a refused grant", PROMPTLY, free).await;
    });
}

#[test]
fn in_a_cluster_each_master_asks_its_own_replicas_and_one_wait_serves_many() {
    about_time(async || {
        let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
        let locks = insisting(cluster.url(), 1).await;
        let names: Vec<_> = (0..120).map(|i| format!("wait/{i}")).collect();
        let guards = join_all(names.iter().map(|name| obtain(&locks, name, PROMPTLY))).await;
        let (mut there, mut waits) = (0, 0);
        for node in cluster.nodes() {
            let is_replica = say(node, "ROLE").await.into_parts()[0].as_text().as_deref() == Some("slave");
            let count = say(node, "KEYS lock:mutex:{wait/*}").await.into_parts().len();
            there += if is_replica { count } else { 0 };
            let stats = say(node, "INFO commandstats").await.to_string();
            let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_wait:calls=")?.split(',').next());
            waits += calls.map_or(0, |calls| calls.parse::<usize>().unwrap());
        }
        assert_eq!(there, names.len(), "acknowledged, but not there");
        assert!(waits > 0 && waits < names.len(), "{waits} calls of WAIT for {} grants", names.len());
        join_all(guards.into_iter().map(|guard| async { guard.release().await.unwrap() })).await;

        let slot = cluster.slot_of("lock:mutex:{wait/0}").await.unwrap();
        let _stopped = Stopped::now(vec![cluster.replica_of(slot).await.unwrap()]);
        let refused = locks.mutex("wait/0").try_lock().await.unwrap_err();
        assert!(refused.to_string().contains("0 instead of 1 replicas"), "{refused}");
        assert!(!has(cluster.master_of(slot).await.unwrap(), "wait/0").await, "it was undone");
    });
}

#[test]
fn a_thousand_tries_share_the_wait_for_replicas_and_none_takes_longer_than_it_may() {
    about_time(async || {
        let Some(server) = installed(RedisServer::start_own().await) else { return };
        // Long enough for a thousand grants and as many cancellations on a machine that is busy.
        let op_timeout = ms(10_000);
        let config = RedisConfig::new(server.url()).with_replicas(1, ms(400));
        let config = config.with_client(ClientOptions::default().with_op_timeout(op_timeout));
        let locks = RedisLocks::connect_with(config).await.unwrap();
        let tries = (0..1000).map(|i| {
            let mutex = locks.mutex(format!("shared/{i}"));
            tokio::spawn(async move {
                let began = std::time::Instant::now();
                (mutex.try_lock().await.unwrap_err(), began.elapsed())
            })
        });
        for tried in join_all(tries).await {
            let (refused, took) = tried.unwrap();
            assert_eq!((refused.kind(), refused.is_definite()), (ErrorKind::Unavailable, true), "{refused:?}");
            assert!(took < op_timeout + ms(600), "a try took {took:?}");
        }
        let stats = say(&server, "INFO commandstats").await.to_string();
        let waits = stats.lines().find_map(|line| line.strip_prefix("cmdstat_wait:calls=")).unwrap();
        let waits: u32 = waits.split(',').next().unwrap().parse().unwrap();
        assert!(waits <= 4, "they were waited for {waits} times");
        assert_eq!(say(&server, "KEYS lock:mutex:*}").await.into_parts().len(), 0, "something was left");
    });
}
