//! Several locks at once: one transaction, of which nobody sees a part.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit_servers::zookeeper::{Acl, ZooKeeperClient};
use lock_zk::multi::{Lockable, lock_all, try_lock_all};
use lock_zk::{Access, ErrorKind, LockName, SessionState, ZkConfig, ZkLocks};

use crate::support::{
    LASTING, PROMPTLY, SESSION, client, connected, eventually, link, maker, ms, nodes, over, server, soon,
};

/// Two mutexes, one of them fenced, and a write lock.
fn three(locks: &ZkLocks) -> [Lockable; 3] {
    let fenced = locks.mutex("c").fenced().unwrap();
    [locks.mutex("a").into(), Lockable::write(&locks.rwlock("b")), fenced.into()]
}

/// The nodes of each of the three.
async fn held(truth: &ZooKeeperClient) -> Vec<String> {
    let directories = ["/lock/mutex/a", "/lock/rwlock/b", "/lock/mutex/c"];
    let listed = join_all(directories.map(|directory| async move {
        let names = truth.children(directory).await.unwrap().unwrap_or_default();
        names.into_iter().map(move |name| format!("{directory}/{name}")).collect::<Vec<_>>()
    }));
    listed.await.concat()
}

#[tokio::test]
async fn three_locks_are_one_transaction_and_their_token_is_the_transaction() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let mut last = 0;
    for _ in 0..3 {
        let all = lock_all(three(&locks)).await.unwrap();
        let nodes = held(&truth).await;
        assert_eq!(nodes.len(), 3, "{nodes:?}");
        for ((_, token), node) in all.fencing_tokens().zip(&nodes) {
            let made = truth.exists(node).await.unwrap().unwrap().czxid;
            assert_eq!(token.unwrap().as_u64(), u64::try_from(made).unwrap());
            assert!(made > last, "{made:#x} after {last:#x}");
            assert_ne!(maker(&truth, node).await, 0, "{node} outlives its session");
        }
        last = all.fencing_tokens().map(|(_, token)| token.unwrap().as_u64().cast_signed()).max().unwrap();
        all.release().await.unwrap();
        assert!(held(&truth).await.is_empty());
    }
}

#[tokio::test]
async fn a_step_is_one_request_granted_or_not() {
    const TURNS: i64 = 100;
    let Some(server) = server().await else { return };
    let (locks, other) = (client(server.url(), LASTING).await, client(server.url(), LASTING).await);
    lock_all(three(&locks)).await.unwrap().release().await.unwrap();
    let all = lock_all(three(&locks)).await.unwrap();
    let received = async || server.figure("zk_packets_received").await.unwrap();
    let before = received().await;
    for _ in 0..TURNS {
        assert!(try_lock_all(three(&other)).await.unwrap().is_none());
    }
    let requests = received().await - before;
    // And a few pings, heartbeats and renewals.
    assert!((TURNS..TURNS + TURNS / 4).contains(&requests), "{requests} requests for {TURNS} refused tries");
    all.release().await.unwrap();
    let before = received().await;
    for _ in 0..TURNS {
        try_lock_all(three(&other)).await.unwrap().expect("nobody holds them").release().await.unwrap();
    }
    let requests = received().await - before;
    // The releases of three go together, but for the first of them.
    assert!((TURNS * 2..TURNS * 3 + TURNS / 4).contains(&requests), "{requests} requests for {TURNS} turns");
}

#[tokio::test]
async fn the_last_lock_being_held_nobody_ever_sees_the_others_held() {
    let Some(server) = server().await else { return };
    let (holder, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    for is_mutex in [true, false] {
        let last = |locks: &ZkLocks| {
            if is_mutex { locks.mutex("last").into() } else { Lockable::write(&locks.rwlock("last")) }
        };
        let kept = lock_all([last(&holder)]).await.unwrap();
        let over = Arc::<AtomicBool>::default();
        let mut tries = Vec::new();
        for _ in 0..3 {
            let (locks, over) = (client(server.url(), LASTING).await, over.clone());
            let last = last(&locks);
            tries.push(tokio::spawn(async move {
                let mut tries = 0;
                while !over.load(Ordering::Relaxed) {
                    let all = [locks.mutex("a").into(), Lockable::write(&locks.rwlock("b")), last.clone()];
                    assert!(try_lock_all(all).await.unwrap().is_none());
                    tries += 1;
                }
                tries
            }));
        }
        for _ in 0..60 {
            let seen = held(&truth).await;
            assert!(seen.is_empty(), "a part of them is held: {seen:?}");
        }
        over.store(true, Ordering::Relaxed);
        for tries in soon("the last tries end", PROMPTLY, join_all(tries)).await {
            assert!(tries.unwrap() > 10);
        }
        kept.release().await.unwrap();
    }
}

#[tokio::test]
async fn whoever_stands_in_a_queue_goes_first_and_whoever_comes_later_stands_behind() {
    let Some(server) = server().await else { return };
    let (locks, other) = (client(server.url(), LASTING).await, client(server.url(), LASTING).await);
    let all = lock_all(three(&locks)).await.unwrap();
    let reader = tokio::spawn({
        let lock = other.rwlock("b");
        async move { lock.read().await.unwrap() }
    });
    let queue = async || locks.rwlock("b").inspect().await.unwrap().waiters.len() == 1;
    eventually("the reader waits", PROMPTLY, queue).await;
    let writer = tokio::spawn({
        let lock = locks.rwlock("b");
        async move { lock.write().await.unwrap() }
    });
    eventually("so does a writer", PROMPTLY, async || locks.rwlock("b").inspect().await.unwrap().waiters.len() == 2)
        .await;
    all.release().await.unwrap();
    let reading = soon("the reader is granted", PROMPTLY, reader).await.unwrap();
    assert!(try_lock_all(three(&locks)).await.unwrap().is_none());
    reading.release().await.unwrap();
    let writing = soon("the writer is granted", PROMPTLY, writer).await.unwrap();
    assert!(try_lock_all(three(&other)).await.unwrap().is_none());
    writing.release().await.unwrap();
    try_lock_all(three(&other)).await.unwrap().expect("nobody holds them").release().await.unwrap();
}

#[tokio::test]
async fn shared_paths_and_more_than_a_server_is_to_take_at_once_are_taken_one_by_one() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    for count in [64, 65] {
        let all = lock_all((0..count).map(|i| locks.mutex(format!("many/{i:02}")))).await.unwrap();
        let tokens: std::collections::HashSet<_> = all.fencing_tokens().map(|(_, token)| token.unwrap()).collect();
        assert_eq!(tokens.len(), if count == 64 { 1 } else { 65 }, "{count} locks");
        all.release().await.unwrap();
    }
    // Somebody else's directory: it stays as it is.
    let shared = || LockName::from_key("/jobs").unwrap();
    let all = lock_all([locks.mutex("a"), locks.mutex(shared())]).await.unwrap();
    let made = truth.exists("/jobs").await.unwrap().unwrap().czxid;
    all.release().await.unwrap();
    lock_all([locks.mutex("a"), locks.mutex(shared())]).await.unwrap().release().await.unwrap();
    assert_eq!(truth.exists("/jobs").await.unwrap().unwrap().czxid, made);
}

#[tokio::test]
async fn an_answer_that_is_lost_costs_no_try_as_long_as_there_is_time() {
    let Some(server) = server().await else { return };
    let truth = server.client().await.unwrap();
    for direction in [Direction::ToClient, Direction::ToServer] {
        let link = link(&server);
        let locks = client(&over([&link]), LASTING).await;
        lock_all(three(&locks)).await.unwrap().release().await.unwrap();
        let lost = link.inject(LinkFault::new(Toxic::Reset, direction).on_request(1, "/lock/mutex/a"));
        let outcome = soon("the try ends", PROMPTLY, try_lock_all(three(&locks))).await;
        lost.heal().unwrap();
        outcome.expect("it is asked again").expect("they are free").release().await.unwrap();
        eventually("nothing is left", PROMPTLY, async || held(&truth).await.is_empty()).await;
    }
}

#[tokio::test]
async fn a_silent_link_leaves_nothing_of_any_of_them() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let locks = client(&over([&link]), LASTING).await;
    lock_all(three(&locks)).await.unwrap().release().await.unwrap();
    let silent = link.inject(LinkFault::new(Toxic::Blackhole, Direction::ToClient).on_request(1, "/lock/mutex/a"));
    let outcome = soon("the try ends", PROMPTLY, try_lock_all(three(&locks))).await;
    let error = outcome.expect_err("nothing answers");
    assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Indeterminate, false), "{error}");
    silent.heal().unwrap();
    eventually("nothing is left", PROMPTLY, async || held(&truth).await.is_empty()).await;
    lock_all(three(&locks)).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_try_that_is_dropped_leaves_nothing_of_any_of_them() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let locks = client(&over([&link]), LASTING).await;
    lock_all(three(&locks)).await.unwrap().release().await.unwrap();
    let late = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient).on_request(1, "/lock/mutex/a"));
    let trying = tokio::spawn(try_lock_all(three(&locks)));
    eventually("they are taken", PROMPTLY, async || held(&truth).await.len() == 3).await;
    trying.abort();
    assert!(trying.await.unwrap_err().is_cancelled());
    late.heal().unwrap();
    eventually("nothing is left", PROMPTLY, async || held(&truth).await.is_empty()).await;
}

#[tokio::test]
async fn a_holder_of_several_hands_each_over_and_loses_each_by_itself() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), SESSION).await, server.client().await.unwrap());
    let all = lock_all(three(&locks)).await.unwrap();
    let next = tokio::spawn({
        let lock = locks.mutex("a");
        async move { lock.lock().await.unwrap() }
    });
    eventually("somebody waits here", PROMPTLY, async || nodes(&truth, "a").await.len() == 2).await;
    tokio::time::sleep(ms(100)).await;
    let lost = all.guards()[1].lost();
    for node in truth.children("/lock/rwlock/b").await.unwrap().unwrap() {
        assert!(truth.delete(&format!("/lock/rwlock/b/{node}")).await.unwrap());
    }
    soon("the loss of one is told", PROMPTLY, lost).await;
    let each = all.into_guards();
    assert!(each[0].is_held() && each[2].is_held());
    drop(each);
    soon("the next is granted", PROMPTLY, next).await.unwrap().release().await.unwrap();
    eventually("nothing is left", PROMPTLY, async || held(&truth).await.is_empty()).await;
}

#[tokio::test]
async fn who_may_not_delete_directories_takes_several_one_by_one() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let both = || [locks.mutex("a"), locks.mutex("c")];
    let tokens = async || {
        let all = lock_all(both()).await.unwrap();
        let tokens: Vec<_> = all.fencing_tokens().map(|(_, token)| token.unwrap()).collect();
        all.release().await.unwrap();
        tokens
    };
    let together = tokens().await;
    assert_eq!(together[0], together[1]);
    // All but the right to delete what is in it.
    let rights = Acl { permissions: 0b10111, scheme: "world".to_owned(), id: "anyone".to_owned() };
    assert!(truth.set_acl("/lock/mutex", &[rights]).await.unwrap());
    let apart = tokens().await;
    assert!(apart[0] != apart[1] && apart.iter().all(|token| *token > together[0]), "{apart:?}");
}

/// Rights of 16 KB, once for each node and directory that is made: more than servers take of one request.
#[tokio::test]
async fn locks_with_long_lists_of_rights_are_taken_by_requests_that_servers_take() {
    const LOCKS: usize = 64;
    let Some(server) = server().await else { return };
    let other = |number: usize| ("digest".to_owned(), format!("user-{number:03}:{}", "b".repeat(28)));
    let everybody = ("world".to_owned(), "anyone".to_owned());
    let access = Access::Only((0..300).map(other).chain([everybody]).collect());
    let link = link(&server);
    let config = ZkConfig::new(over([&link])).with_prefix("own").with_session_timeout(LASTING).with_tick_time(ms(200));
    let locks = connected(config.with_access(access)).await;
    let made = link.connections();
    let names: Vec<_> = (0..LOCKS).map(|number| format!("of-many-{number}")).collect();
    let mutexes: Vec<_> = names.iter().map(|name| locks.mutex(name.as_str())).collect();
    let all = soon("all in one call", PROMPTLY, lock_all(mutexes.iter().cloned())).await;
    all.unwrap().release().await.unwrap();
    let held = soon("all at one moment", PROMPTLY, join_all(mutexes.iter().map(|mutex| mutex.lock()))).await;
    for held in held {
        held.unwrap().release().await.unwrap();
    }
    assert_eq!((link.connections(), locks.session_state()), (made, SessionState::Connected));
}
