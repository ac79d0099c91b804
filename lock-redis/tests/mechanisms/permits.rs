//! Permits: limits that disagree, and a part released without memory.

use std::time::Duration;

use futures_util::future::try_join_all;
use lock_redis::{
    ClientOptions, ErrorKind, Inspection, LeaseOptions, LossReason, Permit, Phase, RedisConfig, Semaphore,
};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};

use crate::server::{PROMPTLY, Server, calls, configured, long, ms, refused, soon};

const KEY: &str = "lock:semaphore:{permits}";

#[tokio::test(flavor = "multi_thread")]
async fn another_limit_is_refused_beside_holders_and_beside_waiters_only() {
    let Some(server) = Server::start().await else { return };
    let (a, b) = (server.patient_client().await, server.patient_client().await);
    let held = a.semaphore("permits", 2).with_lease(long()).acquire_many(2).await.unwrap();
    let (other, shown) = (b.semaphore("permits", 3), server.shown());
    let mismatch = &[ErrorKind::LimitMismatch];
    refused(other.try_acquire().await, mismatch, &[Phase::Acquire], "permits", &shown);
    refused(other.acquire().await, mismatch, &[Phase::Acquire], "permits", &shown);
    let permits = a.semaphore("permits", 2).with_lease(long());
    let waiting = tokio::spawn(async move { permits.acquire().await.unwrap() });
    server.until_in_line(KEY, 1).await;
    // The holder's entry is gone; who waits is let in before the other limit is looked at.
    server.run(&["DEL", KEY]).await;
    refused(other.try_acquire().await, mismatch, &[Phase::Acquire], "permits", &shown);
    let next = soon("let in", PROMPTLY, waiting).await.unwrap();
    assert!(held.release().await.is_err());
    next.release().await.unwrap();
    other.acquire().await.unwrap().release().await.unwrap();
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_is_released_without_memory_lets_the_next_one_in() {
    let Some(server) = Server::start().await else { return };
    let (a, b) = (server.patient_client().await, server.patient_client().await);
    let mut held = a.semaphore("permits", 3).with_lease(long()).acquire_many(3).await.unwrap();
    let permits = b.semaphore("permits", 3).with_lease(long());
    let waiting = tokio::spawn(async move { permits.acquire_many(2).await.unwrap() });
    server.until_in_line(KEY, 1).await;
    server.say("CONFIG SET maxmemory 1").await;
    held.release_some(1).await.unwrap();
    assert!(held.is_held() && held.permits() == 2 && !waiting.is_finished());
    held.release_some(1).await.unwrap();
    let next = soon("let in", PROMPTLY, waiting).await.unwrap();
    assert_eq!((held.permits(), next.permits()), (1, 2));
    server.say("CONFIG SET maxmemory 0").await;
    held.extend(ms(40_000)).await.unwrap();
    held.release().await.unwrap();
    next.release().await.unwrap();
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_release_of_a_part_that_finds_a_release_by_force_tells_its_reason() {
    let Some(server) = Server::start().await else { return };
    let locks = server.patient_client().await;
    let mut held = locks.semaphore("permits", 3).with_lease(lasting()).acquire_many(3).await.unwrap();
    // By an operator whose push did not come.
    server.run(&["SET", &format!("{KEY}:x"), &format!("{}:[\"an operator\",\"it hangs\"]", held.grant_id())]).await;
    server.run(&["DEL", KEY]).await;
    let error = held.release_some(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotHeld, "{error}");
    let reason = LossReason::ForceReleased { by: "an operator".to_owned(), reason: "it hangs".to_owned() };
    assert_eq!(
        (error.loss(), soon("the holder is told", PROMPTLY, held.lost()).await),
        (Some(&reason), reason.clone())
    );
}

/// Its first sending has released them, or the grant was gone before: it is gone either way, as a part that is released leaves one.
#[tokio::test(flavor = "multi_thread")]
async fn the_release_of_a_part_that_is_sent_again_knows_that_the_grant_is_gone() {
    let Some(server) = Server::start().await else { return };
    let link = Proxy::to(server.address(), Protocol::Resp).unwrap();
    let mut options = ClientOptions::default();
    (options.op_timeout, options.patience) = (PROMPTLY, PROMPTLY * 3);
    let locks = configured(RedisConfig::new(format!("redis://{}", link.address())).with_client(options)).await.unwrap();
    let mut held = locks.semaphore("permits", 3).with_lease(lasting()).acquire_many(3).await.unwrap();
    let unanswered = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient).on_request(1, "{permits}"));
    let error = {
        let (released, ()) = tokio::join!(held.release_some(1), async {
            unanswered.applied(PROMPTLY).await.unwrap();
            server.run(&["DEL", KEY]).await;
            assert!(server.say("CLIENT KILL TYPE normal SKIPME yes").await.as_int() > Some(0));
            unanswered.heal().unwrap();
        });
        released.unwrap_err()
    };
    assert_eq!(error.kind(), ErrorKind::NotHeld, "{error}");
    assert!(!held.is_held(), "the server has said that it is gone");
}

/// A lease that is not renewed, and does not end while a test looks.
fn lasting() -> LeaseOptions {
    LeaseOptions::new(Duration::from_secs(300)).with_auto_renew(false)
}

/// Takes so many grants of one permit each, a few at a time: on a slow machine thousands at once would have no time for their answers.
async fn many(semaphore: &Semaphore, grants: u32) -> Vec<Permit> {
    let mut held = Vec::new();
    for _ in 0..grants.div_ceil(50) {
        held.extend(try_join_all((0..50).map(|_| semaphore.acquire())).await.unwrap());
    }
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn free_permits_are_counted_without_a_look_at_each_holder() {
    const HELD: u32 = 1500;
    let Some(server) = Server::start().await else { return };
    let locks = server.patient_client().await;
    let semaphore = locks.semaphore("permits", 5000).with_lease(lasting());
    let held = many(&semaphore, HELD).await;
    let looks = async || calls(&server, "hgetall").await + calls(&server, "hscan").await;
    let before = looks().await;
    assert_eq!(semaphore.available().await.unwrap(), 5000 - HELD);
    assert_eq!(looks().await, before);
    let seen = semaphore.inspect().await.unwrap();
    assert_eq!((seen.holders.len(), seen.holder_count()), (Inspection::MOST, u64::from(HELD)));
    // One that is listed, or is not, can be freed by force.
    let (first, last) = (held.first().unwrap(), held.last().unwrap());
    for permit in [first, last] {
        assert!(semaphore.force_release(permit.grant_id(), "the test asks").await.unwrap());
    }
    assert_eq!(semaphore.available().await.unwrap(), 5000 - HELD + 2);
}

/// The leases are ended by the operator's hand, all but one: that does not depend on how long it takes to be granted them.
#[tokio::test(flavor = "multi_thread")]
async fn permits_whose_leases_have_ended_are_free_however_many_there_are() {
    const HELD: u32 = 1200;
    const ENDS: &str = "local all, past = redis.call('HGETALL', KEYS[1]), redis.call('TIME')[1] .. '000'
        for i = 1, #all, 2 do
          if string.sub(all[i], 1, 1) ~= '#' and all[i] ~= ARGV[1] then
            redis.call('HSET', KEYS[1], all[i], (string.gsub(all[i + 1], '^%d+', past)))
          end
        end
        return redis.call('HSET', KEYS[1], '#next', past)";
    let Some(server) = Server::start().await else { return };
    let locks = server.patient_client().await;
    let semaphore = locks.semaphore("permits", 5000).with_lease(lasting());
    let kept = semaphore.acquire_many(7).await.unwrap();
    let held = many(&semaphore, HELD).await;
    assert_eq!(semaphore.available().await.unwrap(), 5000 - HELD - 7);
    let ended = server.run(&["EVAL", ENDS, "1", KEY, &kept.grant_id().to_string()]).await;
    assert_eq!(ended.as_int(), Some(0), "{ended:?}");
    assert_eq!(semaphore.available().await.unwrap(), 5000 - 7);
    drop(held);
    kept.release().await.unwrap();
}
