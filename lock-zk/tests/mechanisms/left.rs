//! Tries that fail when their node is there already: nothing of them is left.

use std::collections::BTreeSet;

use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit::testing::about_time;
use lock_zk::{Access, ClientOptions, ErrorKind, LeaseOptions, SessionState, ZkConfig};

use crate::support::{
    LASTING, PROMPTLY, SESSION, client, connected, eventually, fails, link, ms, nodes, over, server, soon,
};

/// The refusals of a server: no right, too much to do.
const REFUSALS: [&str; 2] = ["-102", "-127"];

/// The number of the request of a try that reads what permits say.
const UNREADABLE: u64 = 4;

/// The `nth` request about this path from now on is refused.
fn refused(nth: u64, path: &str, code: &str) -> LinkFault {
    LinkFault::new(Toxic::Answer { text: code.to_owned() }, Direction::ToServer).on_request(nth, path)
}

#[tokio::test]
async fn a_try_that_is_refused_behind_its_node_leaves_nothing() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let mutex = client(&over([&link]), LASTING).await.mutex("left");
    mutex.lock().await.unwrap().release().await.unwrap();
    for round in 0..100 {
        let refusal = link.inject(refused(2, "/lock/mutex/left", REFUSALS[round % 2]));
        let error = mutex.try_lock().await.unwrap_err();
        refusal.heal().unwrap();
        assert!(error.is_definite(), "{error}");
        assert_eq!(error.kind(), [ErrorKind::Denied, ErrorKind::Unavailable][round % 2], "{error}");
        assert!(nodes(&truth, "left").await.is_empty(), "left in round {round}");
    }
}

#[tokio::test]
async fn a_try_whose_node_cannot_be_deleted_does_not_know_and_leaves_nothing_in_the_end() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let mutex = client(&over([&link]), LASTING).await.mutex("left");
    mutex.lock().await.unwrap().release().await.unwrap();
    for code in REFUSALS {
        let faults = [2, 3].map(|nth| link.inject(refused(nth, "/lock/mutex/left", code)));
        let error = fails(mutex.try_lock().await, ErrorKind::Indeterminate);
        assert!(std::error::Error::source(&error).is_some(), "without its cause: {error:?}");
        faults.into_iter().for_each(|fault| drop(fault.heal().unwrap()));
        eventually("nothing is left", PROMPTLY, async || nodes(&truth, "left").await.is_empty()).await;
    }
}

#[tokio::test]
async fn a_try_for_permits_that_is_refused_at_any_request_leaves_nothing() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let (locks, other) = (client(&over([&link]), LASTING).await, client(server.url(), LASTING).await);
    let held = other.semaphore("left", 3).acquire().await.unwrap();
    let permits = locks.semaphore("left", 3);
    for code in REFUSALS {
        for nth in 1..=5 {
            let refusal = link.inject(refused(nth, "/lock/semaphore/left", code));
            let tried = permits.try_acquire().await;
            refusal.heal().unwrap();
            // What may not be read of another one's permit is done without.
            let error = match tried {
                Ok(Some(granted)) if (code, nth) == (REFUSALS[0], UNREADABLE) => {
                    granted.release().await.unwrap();
                    continue;
                }
                tried => tried.unwrap_err(),
            };
            assert!(error.is_definite(), "request {nth}: {error}");
            let locks = truth.children("/lock/semaphore/left/locks").await.unwrap().unwrap_or_default();
            assert!(locks.is_empty(), "left by request {nth}: {locks:?}");
            assert_eq!(truth.children("/lock/semaphore/left/leases").await.unwrap().unwrap().len(), 1);
        }
    }
    held.release().await.unwrap();
}

#[tokio::test]
async fn permits_that_nobody_else_may_read_count_like_others_and_tries_beside_them_leave_nothing() {
    let Some(server) = server().await else { return };
    let config = ZkConfig::new(server.url()).with_session_timeout(LASTING).with_tick_time(ms(200));
    let config = config.with_prefix("own");
    let open = connected(config.clone()).await.semaphore("left", 3);
    open.acquire().await.unwrap().release().await.unwrap();
    // The directories are open to everybody, and whoever comes now keeps his permits to himself.
    let own = connected(config.with_access(Access::Creator).with_digest("me", "secret")).await.semaphore("left", 3);
    let held = own.acquire_many(2).await.unwrap();
    let truth = server.client().await.unwrap();
    let listed = async |directory: &str| {
        let directory = format!("/own/semaphore/left/{directory}");
        truth.children(&directory).await.unwrap().unwrap_or_default().into_iter().collect::<BTreeSet<_>>()
    };
    let leases = listed("leases").await;
    assert!(!leases.is_empty(), "nothing is shown as held");
    for round in 0..100 {
        assert!(open.try_acquire_many(2).await.unwrap().is_none(), "four of three");
        assert_eq!(listed("locks").await, BTreeSet::new(), "left by the refused try of round {round}");
        assert_eq!(listed("leases").await, leases, "left by the refused try of round {round}");
        open.try_acquire().await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(listed("locks").await, BTreeSet::new(), "left by the permit of round {round}");
        assert_eq!(listed("leases").await, leases, "left by the permit of round {round}");
    }
    let third = open.acquire().await.unwrap();
    assert!(open.try_acquire().await.unwrap().is_none(), "four of three");
    held.release().await.unwrap();
    third.release().await.unwrap();
    assert_eq!([listed("locks").await, listed("leases").await], [BTreeSet::new(), BTreeSet::new()]);
}

#[test]
fn a_wait_that_is_refused_in_its_second_session_does_not_know() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, holder) = (link(&server), client(server.url(), LASTING).await);
        let config = ZkConfig::new(over([&link])).with_session_timeout(SESSION * 2).with_tick_time(ms(200));
        let (locks, truth) = (connected(config).await, server.client().await.unwrap());
        let _held = holder.mutex("twice").lock().await.unwrap();
        let mutex = locks.mutex("twice");
        let waiting = tokio::spawn(async move { mutex.lock().await });
        eventually("two in the queue", PROMPTLY, async || nodes(&truth, "twice").await.len() == 2).await;
        let silent = link.inject(LinkFault::new(Toxic::Hold, Direction::Both));
        eventually("lost", PROMPTLY, async || locks.session_state() == SessionState::Lost).await;
        // What was held back is among the first ones.
        let _refusals: Vec<_> =
            (1..=100).map(|nth| link.inject(refused(nth, "/lock/mutex/twice", REFUSALS[0]))).collect();
        silent.heal().unwrap();
        let error = fails(soon("it is refused", PROMPTLY, waiting).await.unwrap(), ErrorKind::Indeterminate);
        assert!(std::error::Error::source(&error).is_some(), "without its cause: {error:?}");
    });
}

/// A node lives as long as its session. So nothing is given up before.
#[test]
fn a_lock_that_nobody_could_delete_for_longer_than_its_lease_and_a_session_is_freed_at_last() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, truth, second) = (link(&server), server.client().await.unwrap(), ms(1000));
        let mut options = ClientOptions::default();
        (options.op_timeout, options.lease) = (second, LeaseOptions::new(second));
        let config = ZkConfig::new(over([&link])).with_session_timeout(second * 2).with_tick_time(ms(200));
        let locks = connected(config.with_client(options)).await;
        let held = locks.mutex("stays").lock().await.unwrap();
        let refusals: Vec<_> =
            (1..=100).map(|nth| link.inject(refused(nth, "/lock/mutex/stays", REFUSALS[0]))).collect();
        drop(held);
        tokio::time::sleep(second * 6).await;
        assert_eq!(nodes(&truth, "stays").await.len(), 1, "its session is over: nothing was tested");
        refusals.into_iter().for_each(|refusal| drop(refusal.heal()));
        eventually("it is freed", PROMPTLY, async || nodes(&truth, "stays").await.is_empty()).await;
        assert_eq!(locks.session_state(), SessionState::Connected);
    });
}
