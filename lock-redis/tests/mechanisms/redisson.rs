//! A key that is shared with Redisson's `RLock`. No Redisson runs here: its part is played by scripts that do at the server
//! what its own do (a hash with a count for each owner, a message on its channel), over a plain connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::try_join_all;
use lock_redis::{Dialect, ErrorKind, LockName, LossReason, Phase, RedisConfig, RedisLocks};
use lock_testkit_servers::resp::Resp;

use crate::server::{HAND_OVER, PROMPTLY, SLACK, Server, eventually, long, obtain, often, refused, renewed, soon};

const CHANNEL: &str = "redisson_lock__channel:{jobs}";
const LOCK: &str = "
if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return redis.call('pttl', KEYS[1]) end
redis.call('hincrby', KEYS[1], ARGV[1], 1)
redis.call('pexpire', KEYS[1], 30000)";
const UNLOCK: &str = "
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then return 0 end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], '0')
return 1";
const OWNER: &str = "0f8fad5b-d9cb-469f-a165-70867728950e:42";

/// One thread of a client of Redisson's, and its lock.
struct RLock(Resp, String);

impl RLock {
    /// Nothing if it is inside now, otherwise for how many ms somebody else is.
    async fn try_lock(&self) -> Option<i64> {
        self.0.command(&["EVAL", LOCK, "1", "jobs", OWNER]).await.unwrap().as_int()
    }

    /// Waits as Redisson does: for a message, or for the end of the lease that it was told.
    async fn lock(&self) {
        let mut listening = redis::Client::open(&*self.1).unwrap().get_async_pubsub().await.unwrap();
        listening.subscribe(CHANNEL).await.unwrap();
        let mut messages = listening.on_message();
        while let Some(left) = self.try_lock().await {
            let _ = tokio::time::timeout(Duration::from_millis(left.unsigned_abs()), messages.next()).await;
        }
    }

    /// The end of it: whether the lock is free now; nothing if it was not this one's.
    async fn unlock(&self) -> Option<bool> {
        let reply = self.0.command(&["EVAL", UNLOCK, "2", "jobs", CHANNEL, OWNER]).await.unwrap();
        reply.as_int().map(|free| free == 1)
    }
}

fn jobs() -> LockName {
    LockName::from_key("jobs").unwrap()
}

async fn sharing(server: &Server) -> (RedisLocks, RedisLocks, Arc<RLock>) {
    let config = RedisConfig::new(server.url()).with_dialect_at("jobs", Dialect::Redisson);
    let connect = async || RedisLocks::connect_with(config.clone()).await.unwrap();
    let theirs = RLock(Resp::from_url(server.url()).unwrap(), server.url().to_owned());
    (connect().await, connect().await, Arc::new(theirs))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_redisson_excludes_us_until_it_was_unlocked_as_often_as_locked() {
    let Some(server) = Server::start().await else { return };
    let (a, b, theirs) = sharing(&server).await;
    assert!(theirs.try_lock().await.is_none() && theirs.try_lock().await.is_none());
    let seen = a.mutex(jobs()).inspect().await.unwrap();
    assert!(seen.holders.len() == 1 && seen.holders[0].owner.is_none(), "{seen:?}");
    let waiting = tokio::spawn(obtain(&a, jobs(), PROMPTLY));
    server.until_in_line("lock:key:{jobs}:jobs", 1).await;
    assert_eq!(theirs.unlock().await, Some(false));
    assert!(b.mutex(jobs()).try_lock().await.unwrap().is_none(), "its outer lock went with the inner one");
    assert_eq!(theirs.unlock().await, Some(true));
    soon("let in", HAND_OVER + SLACK, waiting).await.unwrap().release().await.unwrap();
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_at_a_key_of_redisson_is_not_passed_on_and_stays_held() {
    let Some(server) = Server::start().await else { return };
    let (locks, _, theirs) = sharing(&server).await;
    let failed = locks.mutex(jobs()).lock().await.unwrap().detach().await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Unsupported, "{}", failed.error);
    assert!(failed.guard.is_held() && theirs.try_lock().await > Some(0));
    failed.guard.release().await.unwrap();
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_ours_excludes_redisson_which_is_told_of_its_end_and_may_end_it() {
    let Some(server) = Server::start().await else { return };
    let (locks, _, theirs) = sharing(&server).await;
    let held = locks.mutex(jobs()).with_lease(often()).lock().await.unwrap();
    assert!(theirs.try_lock().await > Some(0));
    assert_eq!(theirs.unlock().await, None);
    assert_eq!(locks.mutex(jobs()).inspect().await.unwrap().holders[0].grant, Some(held.grant_id()));
    renewed(&held, 2).await;
    held.extend(PROMPTLY * 30).await.unwrap();
    let waiting = tokio::spawn({
        let theirs = theirs.clone();
        async move { theirs.lock().await }
    });
    let listens = async || server.run(&["PUBSUB", "NUMSUB", CHANNEL]).await.into_parts()[1].as_int() == Some(1);
    eventually("Redisson listens", PROMPTLY, listens).await;
    held.release().await.unwrap();
    soon("Redisson is told, long before the lease would have ended", PROMPTLY, waiting).await.unwrap();
    assert!(locks.mutex(jobs()).try_lock().await.unwrap().is_none());
    // Who does not know of Redisson does not break in.
    let other = server.client().await.mutex(jobs()).try_lock().await;
    refused(other, &[ErrorKind::Protocol], &[Phase::Acquire], "jobs", &server.shown());
    assert_eq!(theirs.unlock().await, Some(true));
    // By force, and locked by Redisson at once.
    let held = locks.mutex(jobs()).with_lease(often()).lock().await.unwrap();
    server.say("DEL jobs").await;
    assert!(theirs.try_lock().await.is_none());
    assert_eq!(soon("the next renewal finds it out", often().ttl, held.lost()).await, LossReason::Taken);
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::NotHeld);
    assert_eq!(theirs.unlock().await, Some(true), "what is Redisson's was touched");
    server.has_nothing_left().await;
}

/// A waiter of Redisson's sleeps for as long as the lock was to last when it asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_ours_that_is_left_for_less_than_it_had_is_redisson_s_when_that_is_over() {
    let Some(server) = Server::start().await else { return };
    let (locks, _, theirs) = sharing(&server).await;
    let held = locks.mutex(jobs()).with_lease(long()).lock().await.unwrap();
    let waiting = tokio::spawn({
        let theirs = theirs.clone();
        async move { theirs.lock().await }
    });
    let listens = async || server.run(&["PUBSUB", "NUMSUB", CHANNEL]).await.into_parts()[1].as_int() == Some(1);
    eventually("Redisson listens", PROMPTLY, listens).await;
    held.leave(Duration::from_secs(1)).await.unwrap();
    soon("Redisson has the lock, long before the lease would have ended", PROMPTLY, waiting).await.unwrap();
    assert_eq!(theirs.unlock().await, Some(true));
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redisson_has_its_turns_in_a_crowd_of_ours_and_nobody_meets_anybody() {
    let Some(server) = Server::start().await else { return };
    let (a, b, theirs) = sharing(&server).await;
    let (inside, over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let mut crowd = Vec::new();
    for locks in [&a, &b, &a, &b] {
        let (mutex, inside, over) = (locks.mutex(jobs()).with_lease(long()), inside.clone(), over.clone());
        crowd.push(tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                let held = mutex.lock().await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                tokio::task::yield_now().await;
                inside.store(false, Ordering::SeqCst);
                held.release().await.unwrap();
            }
        }));
    }
    for _ in 0..5 {
        soon("Redisson has a turn", PROMPTLY, theirs.lock()).await;
        assert!(!inside.swap(true, Ordering::SeqCst), "it meets one of ours");
        inside.store(false, Ordering::SeqCst);
        assert_eq!(theirs.unlock().await, Some(true));
    }
    over.store(true, Ordering::SeqCst);
    soon("ours end", PROMPTLY, try_join_all(crowd)).await.unwrap();
    server.has_nothing_left().await;
}
