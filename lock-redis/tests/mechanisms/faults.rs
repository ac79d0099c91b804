//! Faults of the server's own making: it restarts with its data, takes no more clients, pauses them, or evicts a lock.

use std::time::{Duration, Instant};

use lock_redis::{Error, ErrorKind, Inspection, Lease, LossReason, Phase, RedisLocks, Retry};
use lock_testkit_servers::redis::RedisOptions;

use crate::server::{
    COUNTER, HAND_OVER, PROMPTLY, SLACK, Server, eventually, key, ms, obtain, often, refused, renewed, soon,
};

/// It is held by this grant alone, at the server and as its holder sees it.
#[track_caller]
fn is_held_by(inspected: Result<Inspection, Error>, lease: &Lease) {
    let holders = inspected.unwrap().holders;
    let grants: Vec<_> = holders.iter().map(|holder| holder.grant).collect();
    assert_eq!(grants, [Some(lease.grant_id())]);
    assert!(lease.is_held(), "its holder does not know");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_on_a_persistent_server_stays_held_over_a_kill_and_waiters_stay_in_line() {
    let Some(server) = Server::start_with(&RedisOptions::new().persistent()).await else { return };
    let (a, b) = (server.client().await, server.client().await);
    let ttl = ms(6000);
    let mutex = a.mutex("kept").with_ttl(ttl).lock().await.unwrap();
    let read = a.rwlock("kept").with_ttl(ttl).read().await.unwrap();
    let permit = a.semaphore("kept", 1).with_ttl(ttl).acquire().await.unwrap();
    let waiting = tokio::spawn(obtain(&b, "kept", PROMPTLY * 3));
    server.until_queued("kept", 1).await;
    let token = mutex.fencing_token();
    let all_held = async || {
        is_held_by(b.mutex("kept").inspect().await, &mutex);
        is_held_by(b.rwlock("kept").inspect().await, &read);
        is_held_by(b.semaphore("kept", 1).inspect().await, &permit);
        assert!(b.mutex("kept").try_lock().await.unwrap().is_none());
        assert!(b.rwlock("kept").try_write().await.unwrap().is_none());
        assert!(b.semaphore("kept", 1).try_acquire().await.unwrap().is_none());
        assert!(!waiting.is_finished(), "the waiter came in");
    };
    server.restart().await;
    eventually("the client is there again", PROMPTLY, async || b.mutex("kept").inspect().await.ok()).await;
    assert_eq!(server.queued("kept").await, 1, "the waiter lost its place");
    all_held().await;
    // For longer than a lease: renewals find their grants at the server that was restarted.
    let lost = async {
        tokio::select! { r = mutex.lost() => r, r = read.lost() => r, r = permit.lost() => r }
    };
    let lost = tokio::time::timeout(ttl + ms(500), lost).await;
    assert!(lost.is_err(), "lost by a restart: {lost:?}");
    all_held().await;
    mutex.release().await.unwrap();
    let next = soon("handed over", HAND_OVER + SLACK, waiting).await.unwrap();
    assert!(next.fencing_token() > token);
    next.release().await.unwrap();
    read.release().await.unwrap();
    permit.release().await.unwrap();
    server.is_as_new(&a, "kept").await;
}

/// The numbers of all connections in the order in which they were made, the operator's first.
async fn connections(server: &Server) -> Vec<u64> {
    let list = server.say("CLIENT LIST").await.as_text().unwrap();
    let id = |line: &str| line.strip_prefix("id=")?.split(' ').next()?.parse().ok();
    let mut ids: Vec<u64> = list.lines().filter_map(id).collect();
    ids.sort_unstable();
    ids
}

/// Takes so many clients at most.
async fn limit(server: &Server, clients: usize) {
    assert!(server.say(&format!("CONFIG SET maxclients {clients}")).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_more_clients_is_unavailable_to_new_ones_only() {
    let Some(server) = Server::start().await else { return };
    let old = server.client().await;
    let held = old.mutex("full").with_lease(often()).lock().await.unwrap();
    eventually("the first is connected", PROMPTLY, async || (connections(&server).await.len() == 3).then_some(()))
        .await;
    let late = server.hasty_client().await;
    drop(obtain(&late, "other", PROMPTLY).await);
    let made_last = eventually("both are connected", PROMPTLY, async || {
        let ids = connections(&server).await;
        (ids.len() == 5).then(|| ids[3..].to_vec())
    })
    .await;
    limit(&server, 3).await;
    for id in made_last {
        server.say(&format!("CLIENT KILL ID {id}")).await;
    }
    // Until it has seen that it is disconnected, its requests go nowhere, which it cannot know.
    let phases = [Phase::Acquire, Phase::Connect];
    eventually("the late one is disconnected", PROMPTLY, async || {
        let kinds = [ErrorKind::Unavailable, ErrorKind::Indeterminate];
        let error = refused(late.mutex("other").try_lock().await, &kinds, &phases, "other", &server.shown());
        (error.kind() == ErrorKind::Unavailable).then_some(())
    })
    .await;
    for _ in 0..5 {
        let error = RedisLocks::connect(server.url()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.phase(), error.retry()),
            (ErrorKind::Unavailable, Phase::Connect, Retry::Later)
        );
        assert!(error.is_definite() && error.to_string().contains(&server.shown()), "{error}");
        refused(late.mutex("other").try_lock().await, &[ErrorKind::Unavailable], &phases, "other", &server.shown());
    }
    // Who is connected goes on.
    renewed(&held, 3).await;
    obtain(&old, "more", HAND_OVER + SLACK).await.release().await.unwrap();
    let waiting = tokio::spawn(obtain(&late, "full", PROMPTLY));
    let connecting = tokio::spawn(connect_at_last(server.url().to_owned()));
    assert!(!connecting.is_finished());
    limit(&server, 1000).await;
    let new = soon("there is room", PROMPTLY, connecting).await.unwrap();
    assert!(new.mutex("full").try_lock().await.unwrap().is_none());
    server.until_queued("full", 1).await;
    held.release().await.unwrap();
    soon("handed over", HAND_OVER + SLACK, waiting).await.unwrap().release().await.unwrap();
    server.is_as_new(&new, "full").await;
}

/// Connects as soon as it is let in.
async fn connect_at_last(url: String) -> RedisLocks {
    loop {
        match RedisLocks::connect(&url).await {
            Ok(locks) => return locks,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
        tokio::time::sleep(ms(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_are_paused_lose_nothing() {
    let Some(server) = Server::start().await else { return };
    let (holder, waiter) = (server.patient_client().await, server.client().await);
    let pause = ms(1500);
    let held = holder.mutex("paused").with_ttl(ms(6000)).lock().await.unwrap();
    let waiting = tokio::spawn(obtain(&waiter, "paused", PROMPTLY * 3));
    server.until_queued("paused", 1).await;
    for _ in 0..2 {
        let began = Instant::now();
        server.say("CLIENT PAUSE 1500 ALL").await;
        let lost = tokio::time::timeout(Duration::from_secs(3), held.lost()).await;
        assert!(lost.is_err() && held.is_held(), "lost by a pause: {lost:?}");
        server.say("PING").await;
        assert!(began.elapsed() >= pause, "it was no pause");
        is_held_by(waiter.mutex("paused").inspect().await, &held);
        assert!(!waiting.is_finished(), "the waiter came in");
    }
    // The last one covers the release.
    server.say("CLIENT PAUSE 1500 ALL").await;
    held.release().await.unwrap();
    let next = soon("handed over", pause + HAND_OVER + SLACK, waiting).await.unwrap();
    next.release().await.unwrap();
    server.is_as_new(&holder, "paused").await;
}

/// Fills the memory with garbage until these keys had to go.
async fn until_evicted(server: &Server, keys: &[String]) {
    let garbage = "x".repeat(20_000);
    let mut asked = vec!["EXISTS".to_owned()];
    asked.extend_from_slice(keys);
    let mut number = 0;
    eventually("evicted", PROMPTLY, async || {
        for _ in 0..20 {
            number += 1;
            server.run(&["SET", &format!("garbage:{number}"), &garbage]).await;
        }
        (server.run(&asked).await.as_int() == Some(0)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_evicted_is_told_as_taken_at_the_next_renewal_and_tokens_go_on() {
    let options = RedisOptions::new().with_max_memory("6mb", "allkeys-lru").with_directive("maxmemory-samples", "64");
    let Some(server) = Server::start_with(&options).await else { return };
    let locks = server.client().await;
    let held = locks.mutex("evicted").with_ttl(ms(12_000)).lock().await.unwrap();
    let token = held.fencing_token();
    until_evicted(&server, &[key("evicted"), COUNTER.to_owned()]).await;
    let reason = soon("the next renewal finds it out", ms(4000) + SLACK, held.lost()).await;
    assert_eq!(reason, LossReason::Taken);
    assert!(!held.is_held());
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::NotHeld);
    let next = obtain(&locks, "evicted", HAND_OVER + SLACK).await;
    assert!(next.fencing_token() > token, "tokens went back with the evicted one");
    next.release().await.unwrap();
}
