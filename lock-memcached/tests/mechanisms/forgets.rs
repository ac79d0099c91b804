//! A server that forgets its locks: it is restarted or flushed while they are held.

use std::time::Instant;

use lock_memcached::{ErrorKind, LeaseOptions, MemcachedLocks, MutexGuard, RestartPolicy};
use lock_testkit::ms;
use lock_testkit::testing::about_time;
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{LEASE, client, eventually, open, pass, server};

/// Ways in which the server forgets.
#[derive(Clone, Copy, Debug)]
enum Forgets {
    Restart,
    Flush,
}

impl Forgets {
    async fn happen(self, server: &MemcachedServer) {
        match self {
            Self::Restart => server.restart().await.unwrap(),
            Self::Flush => server.client().flush_all().await.unwrap(),
        }
    }
}

/// Another client tries all the time until it is granted the lock, which it was not while the former holder believed.
async fn nobody_enters_beside(former: &MutexGuard, other: &MemcachedLocks) -> MutexGuard {
    let (mutex, began) = (other.mutex("held"), Instant::now());
    loop {
        let granted = mutex.try_lock().await;
        let both = former.is_held();
        match granted {
            Ok(Some(next)) => {
                assert!(!both, "two holders after {:?}", began.elapsed());
                return next;
            }
            Ok(None) => {}
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::TimedOut),
                "{error}"
            ),
        }
        assert!(began.elapsed() < ms(30_000), "nobody is granted the lock any more");
        pass(ms(3)).await;
    }
}

async fn two_holders_never_meet(forgets: Forgets, times: usize) {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (a, b) = (open(&server).await, open(&server).await);
    let mut token = None;
    let began = Instant::now();
    for round in 0..times {
        let former = a.mutex("held").try_lock_for(ms(30_000)).await.unwrap().unwrap();
        assert!(former.fencing_token() > token, "{forgets:?}, round {round}: the token went back");
        forgets.happen(&server).await;
        let next = nobody_enters_beside(&former, &b).await;
        assert!(next.fencing_token() > former.fencing_token(), "{forgets:?}, round {round}: the token went back");
        token = next.fencing_token();
        // A late release, with a number that may be the next one's by now.
        assert_eq!(former.release().await.unwrap_err().kind(), ErrorKind::NotHeld);
        assert!(b.mutex("held").try_lock().await.unwrap().is_none(), "the late release freed the next holder's lock");
        next.release().await.unwrap();
    }
    println!("{times} times {forgets:?} in mid-hold: no two holders, tokens grew, in {:.0?}", began.elapsed());
}

#[test]
#[ignore = "takes minutes"]
fn twenty_restarts_let_no_two_in() {
    about_time(async || {
        two_holders_never_meet(Forgets::Restart, 20).await;
    });
}

#[test]
#[ignore = "takes minutes"]
fn twenty_flushes_let_no_two_in() {
    about_time(async || {
        two_holders_never_meet(Forgets::Flush, 20).await;
    });
}

#[test]
fn after_a_restart_nobody_enters_while_the_former_holder_believes() {
    about_time(async || {
        two_holders_never_meet(Forgets::Restart, 4).await;
    });
}

#[test]
fn after_a_flush_nobody_enters_while_the_former_holder_believes() {
    about_time(async || {
        two_holders_never_meet(Forgets::Flush, 4).await;
    });
}

/// Servers since 1.6.27 forget what was used in the second of a flush later than everything else.
#[test]
fn claims_do_not_use_the_epoch() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let locks = open(&server).await;
        let (mut claims, began) = (0_u32, Instant::now());
        eventually("the epoch's last use is long ago", async || {
            locks.mutex("other").lock().await.unwrap().release().await.unwrap();
            claims += 1;
            let told = server.client().command("me lock:epoch").await.unwrap();
            let used =
                told.split(" la=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse::<u64>().unwrap();
            used >= 5
        })
        .await;
        assert!(claims > 100, "{claims} claims in {:?}", began.elapsed());
    });
}

#[test]
fn without_the_guard_two_hold_at_once_after_a_flush_as_the_documents_warn() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let (a, b) = (client(&server, RestartPolicy::Off).await, client(&server, RestartPolicy::Off).await);
        // Not renewed meanwhile, which would find out.
        let lease = LeaseOptions::new(ms(30_000)).with_auto_renew(false);
        let former = a.mutex("held").with_lease(lease).lock().await.unwrap();
        assert_eq!(former.fencing_token(), None);
        assert_eq!(a.mutex("held").fenced().unwrap_err().kind(), ErrorKind::Unsupported);
        Forgets::Flush.happen(&server).await;
        let next = b.mutex("held").try_lock().await.unwrap().unwrap();
        assert!(former.is_held() && next.is_held(), "if this does not happen any more, the warning can go");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quarantine_is_told_and_a_wait_outlasts_it() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let began = Instant::now();
    let locks = client(&server, RestartPolicy::Quarantine).await;
    let error = locks.mutex("a").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.is_definite() && error.to_string().contains("former holders"), "{error}");
    assert!(server.client().get("lock:mutex:a").await.unwrap().is_none(), "a refused try left something behind");
    let guard = locks.mutex("a").lock().await.unwrap();
    assert!(began.elapsed() >= LEASE, "granted {:?} after the first look", began.elapsed());
    guard.release().await.unwrap();
}

#[test]
fn a_quarantine_ends_early_only_on_a_server_that_was_up_for_long_and_never_flushed() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let young = client(&server, RestartPolicy::EndEarly).await;
        assert_eq!(young.mutex("a").try_lock().await.unwrap_err().kind(), ErrorKind::Unavailable);
        // Longer than the longest lease and 4 s, by the server's own clock.
        crate::support::eventually("the server is old", async || {
            server.client().stats("").await.unwrap()["uptime"].parse::<u64>().unwrap() > 6
        })
        .await;
        let config = |prefix: &str| {
            crate::support::config(&server).with_prefix(prefix).with_restart_policy(RestartPolicy::EndEarly)
        };
        let old = MemcachedLocks::connect_with(config("old")).await.unwrap();
        old.mutex("a").try_lock().await.unwrap().unwrap().release().await.unwrap();
        server.client().flush_all().await.unwrap();
        let flushed = MemcachedLocks::connect_with(config("flushed")).await.unwrap();
        assert_eq!(flushed.mutex("a").try_lock().await.unwrap_err().kind(), ErrorKind::Unavailable);
    });
}
