//! Faults, for the client crate `zookeeper-async`. It may lose its session when a server starts again, and locks that
//! stay within a process take more requests.

#![cfg(test)]

mod closed;
mod cut;
mod dialects;
mod flood;
mod input;
mod load;
mod lost;
mod numbers;
mod panics;
mod parts;
mod permits;
mod queue;
mod rights;
mod runtimes;
mod session;
mod silent;
mod support;
mod swallowed;
mod unpolled;

use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit::testing::about_time;
use lock_testkit_servers::zookeeper::{NodeKind, ZooKeeperOptions, ZooKeeperServer};
use lock_zk::{Access, ClientOptions, Error, ErrorKind, LossReason, Phase, ZkConfig, ZkLocks};

use support::{LASTING, PROMPTLY, client, connected, eventually, link, ms, over, server, soon, there};

/// The constructor by which clients come.
async fn connect(config: ZkConfig) -> Result<ZkLocks, Error> {
    ZkLocks::connect_with_zookeeper_async(config).await
}

/// Whether an answer that is swallowed costs the connection.
const COSTS_CONNECTION: bool = true;

/// The reasons that holders are told for a session that is gone. A server that drops every request of a dead session looks like one that is
/// silent to this client, and its lease ends first.
const SESSION_LOST: &[LossReason] = &[LossReason::SessionExpired, LossReason::Expired];

/// The tries to open a session that are waited for: none, as the crate is not asked where no server is.
const TOLD_WHILE_OPENED: usize = 0;

/// The phases in which a client that lacks the right to the prefix learns that: its session's own node is there.
const DENIED_AT: &[Phase] = &[Phase::Connect];

#[tokio::test]
async fn a_waiter_goes_on_when_its_watch_went_with_its_connection() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), ms(8000)).await, server.client().await.unwrap());
    truth.create_all("/lock/mutex/watched").await.unwrap();
    let stem = "/lock/mutex/watched/_c_0f8fad5b-d9cb-469f-a165-70867728950e-lock-";
    let before = truth.create(stem, b"", NodeKind::EphemeralSequential).await.unwrap().unwrap();
    let mutex = locks.mutex("watched");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    eventually("a watch", PROMPTLY, async || server.figure("zk_watch_count").await.unwrap() == 1).await;
    server.restart().await.unwrap();
    // Watched again, or in the queue again: whatever became of its session.
    eventually("a watch", PROMPTLY, async || server.figure("zk_watch_count").await.unwrap() == 1).await;
    assert!(!waiting.is_finished(), "granted although somebody holds it");
    eventually("the one before is gone", PROMPTLY, async || truth.delete(&before).await.is_ok()).await;
    soon("the waiter is granted", PROMPTLY, waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn credentials_are_shown_again_after_a_reconnection() {
    let Some(server) = server().await else { return };
    let config = ZkConfig::new(server.url()).with_session_timeout(ms(8000)).with_tick_time(ms(200));
    let locks = connected(config.with_prefix("own").with_access(Access::Creator).with_digest("me", "secret")).await;
    let held = locks.mutex("again").lock().await.unwrap();
    server.restart().await.unwrap();
    if let Err(error) = held.release().await {
        assert!(matches!(error.kind(), ErrorKind::NotHeld | ErrorKind::Indeterminate), "{error:?}");
    }
    soon("the next", PROMPTLY * 2, locks.mutex("again").lock()).await.unwrap().release().await.unwrap();
}

#[test]
fn a_session_outlives_an_answer_that_is_swallowed_while_its_connection_is_put_to_the_proof() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let link = link(&server);
        let locks = client(&over([&link]), ms(10_000)).await;
        let kept = locks.mutex("kept").lock().await.unwrap();
        let lost = link.inject(LinkFault::new(Toxic::Swallow, Direction::ToClient).on_request(1, "proof-"));
        let cut = link.inject(LinkFault::new(Toxic::Reset, Direction::Both));
        cut.applied(PROMPTLY).await.unwrap();
        cut.heal().unwrap();
        soon("another lock", PROMPTLY * 2, locks.mutex("other").lock()).await.unwrap().release().await.unwrap();
        lost.proven().unwrap();
        assert!(kept.is_held(), "the session was given up");
        kept.release().await.unwrap();
    });
}

#[test]
fn the_node_of_a_heartbeat_is_deleted_again_if_its_deletion_is_lost() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, truth) = (link(&server), server.client().await.unwrap());
        let locks = client(&over([&link]), ms(8000)).await;
        let kept = locks.mutex("kept").with_ttl(LASTING).lock().await.unwrap();
        let nodes = async || truth.children("/lock/sessions").await.unwrap().unwrap_or_default();
        let last = async || {
            let numbered = |name: String| Some((name.rsplit_once('-')?.1.parse::<u64>().ok()?, name));
            let marks = nodes().await.into_iter().filter(|name| !name.contains("-sync-") && !name.contains("-proof-"));
            marks.filter_map(numbered).max()
        };
        // Its successor comes a while later, and then its deletion.
        let before = last().await;
        let (_, last) =
            eventually("a heartbeat", PROMPTLY, async || last().await.filter(|last| before != Some(last.clone())))
                .await;
        let lost = link.inject(LinkFault::new(Toxic::Fin, Direction::ToServer).on_request(1, last.clone()));
        lost.applied(PROMPTLY).await.unwrap();
        eventually("it is deleted again", PROMPTLY, async || !nodes().await.contains(&last)).await;
        assert!(kept.is_held(), "with its session");
        kept.release().await.unwrap();
    });
}

#[tokio::test]
async fn a_client_that_is_dropped_closes_its_session() {
    let Some(server) = server().await else { return };
    let (long, truth) = (PROMPTLY * 6, server.client().await.unwrap());
    let locks = client(server.url(), long).await;
    let sessions = async || truth.children("/lock/sessions").await.unwrap().unwrap_or_default().len();
    assert!(sessions().await > 0, "a session has a node of its own");
    drop(locks);
    eventually("the node goes with the session", PROMPTLY, async || sessions().await == 0).await;
}

#[tokio::test]
async fn directories_are_removed_when_they_are_empty_and_no_digest_is_wrong() {
    let options = ZooKeeperOptions::new().with_property("znode.container.checkIntervalMs", "300");
    let Some(server) = there(ZooKeeperServer::start_with(&options).await) else { return };
    let truth = server.client().await.unwrap();
    let config = || ZkConfig::new(server.url()).with_session_timeout(LASTING).with_tick_time(ms(200));
    for config in [config(), config().with_prefix("own").with_access(Access::Creator).with_digest("me", "secret")] {
        let prefix = format!("/{}", config.prefix);
        let locks = connected(config).await;
        let held = soon("the lock", PROMPTLY, locks.mutex("once").lock()).await.unwrap();
        let permit = soon("a permit", PROMPTLY, locks.semaphore("once", 2).acquire()).await.unwrap();
        held.release().await.unwrap();
        permit.release().await.unwrap();
        drop(locks);
        eventually("nothing is left", PROMPTLY * 2, async || truth.exists(&prefix).await.unwrap().is_none()).await;
    }
    assert_eq!(server.figure("zk_digest_mismatches_count").await.unwrap(), 0);
}

/// The session has moved on from it, and each name is new.
#[test]
fn names_are_granted_while_the_server_that_was_asked_first_for_directories_is_silent() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let links = [(); 3].map(|()| link(&server));
        let locks = client(&over(&links), LASTING).await;
        let known = locks.mutex("known");
        known.lock().await.unwrap().release().await.unwrap();
        let cut = [Toxic::Refuse, Toxic::Reset].map(|toxic| links[0].inject(LinkFault::new(toxic, Direction::Both)));
        eventually("the session has moved on", LASTING, async || match known.try_lock().await {
            Ok(Some(held)) => held.release().await.is_ok() && links[0].open_connections() == 0,
            _ => false,
        })
        .await;
        let _silent = links[0].inject(LinkFault::new(Toxic::Hold, Direction::Both));
        drop(cut);
        // One of them may have to find out.
        let _ = locks.mutex("first").try_lock().await;
        for name in ["second", "third"] {
            let held = locks.mutex(name).try_lock().await.unwrap().expect("nobody has it");
            held.release().await.unwrap();
        }
    });
}

/// The answers are late by more than the operation timeout, and not for so long that the connection is given up. The second call begins
/// when the first one's exchange has ended, or while it is under way.
#[test]
fn a_downgrade_that_was_done_after_its_caller_had_given_up_is_completed_by_the_next_call() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, truth) = (link(&server), server.client().await.unwrap());
        let mut options = ClientOptions::default();
        options.op_timeout = ms(1000);
        let config = ZkConfig::new(over([&link])).with_session_timeout(LASTING).with_tick_time(ms(200));
        let locks = connected(config.with_client(options)).await;
        for (name, is_ended) in [("ended", true), ("under-way", false)] {
            let write = locks.rwlock(name).with_ttl(LASTING).write().await.unwrap();
            let held_up = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient));
            let failed = soon("the first call", PROMPTLY, write.downgrade()).await.unwrap_err();
            assert_eq!(failed.error.kind(), ErrorKind::Indeterminate, "{}", failed.error);
            held_up.heal().unwrap();
            if is_ended {
                eventually("the reader's node alone is there", PROMPTLY, async || {
                    let there = truth.children(&format!("/lock/rwlock/{name}")).await.unwrap().unwrap_or_default();
                    there.len() == 1 && there[0].contains("-__READ__")
                })
                .await;
            }
            let again = soon("the second call", PROMPTLY, failed.guard.downgrade()).await;
            let read = again.map_err(|failed| failed.error).unwrap();
            let beside = locks.rwlock(name).try_read().await.unwrap().expect("readers are let in");
            assert!(read.is_held() && locks.rwlock(name).try_write().await.unwrap().is_none());
            beside.release().await.unwrap();
            read.release().await.unwrap();
            assert!(truth.children(&format!("/lock/rwlock/{name}")).await.unwrap().unwrap_or_default().is_empty());
        }
    });
}

/// The refused one is the deletion of its place in the queue, behind the making of that, a look at it, and the making of the permit.
#[tokio::test]
async fn a_try_for_a_permit_whose_place_may_not_be_deleted_is_refused_and_not_granted() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let locks = client(&over([&link]), LASTING).await;
    let semaphore = locks.semaphore("refused", 2);
    semaphore.try_acquire().await.unwrap().unwrap().release().await.unwrap();
    let refused = LinkFault::new(Toxic::Answer { text: "-102".to_owned() }, Direction::ToServer);
    let refused = link.inject(refused.on_request(3, "/lock/semaphore/refused/locks/_c_"));
    let tried = semaphore.try_acquire().await;
    refused.proven().unwrap();
    let error = tried.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    for directory in ["locks", "leases"] {
        let left = truth.children(&format!("/lock/semaphore/refused/{directory}")).await.unwrap().unwrap_or_default();
        assert!(left.is_empty(), "left in {directory}: {left:?}");
    }
}
