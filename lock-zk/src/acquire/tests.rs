//! Acquisitions whose session ends in between, or that find two nodes of their own.

use std::time::Duration;

use futures_util::FutureExt;
use lock_core::Owner;
use lock_testkit::testing::{PROMPTLY, eventually, installed};
use lock_testkit_servers::zookeeper::ZooKeeperServer;

use super::*;
use crate::ZkLocks;
use crate::client::Fate;

/// The session ends by our clock when the node was asked for; its answer comes all the same.
#[tokio::test]
async fn a_try_whose_session_ends_before_the_answer_does_not_know() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    for kind in [Kind::Mutex, Kind::Permits { permits: 1, limit: 1 }] {
        let mut rounds = 0;
        // The session's task may find it over before the answer comes: then the request has ended with the session.
        let answered = eventually("an answer behind the end", PROMPTLY * 3, async || {
            rounds += 1;
            let failure = cut_short(server.url(), &format!("late-{rounds}"), kind).await;
            (!failure.is(Fate::Ended)).then(|| failure.error(Phase::Acquire))
        });
        let error = answered.await;
        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{kind:?}: {error}");
    }
}

/// Two requests make them, if the first one's answer was taken for a refusal.
#[tokio::test]
async fn an_attempt_that_finds_two_nodes_of_its_own_keeps_the_first_one() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let locks = ZkLocks::connect(server.url()).await.unwrap();
    let backend = locks.backend();
    let attempt = Attempt::new("twice".into(), Kind::Mutex, Owner::new(), Duration::from_secs(10)).unwrap();
    let session = backend.sessions.current().await;
    let mut entry = backend.acquirer.register(&attempt, &session, true).await.unwrap();
    let (connection, lock) = (&session.connection, entry.registration.lock.clone());
    connection.make_directory(&lock.directory).await.unwrap();
    let append =
        || connection.enqueue(&lock.stem(attempt.id), b"", &lock.directory, entry.registration.departure()).boxed();
    let (first, second) = (append().await.unwrap(), append().await.unwrap());
    assert_ne!(first.path, second.path);
    let position = entry.settle(Event::Unanswered).await.unwrap();
    assert!(matches!(position, QueuePosition::First(_)), "{position:?}");
    assert_eq!(entry.registration.paths(), [first.path]);
    assert_eq!(connection.children(&lock.directory).await.unwrap().len(), 1, "it would be before whoever comes next");
}

/// The outcome of a try whose session is given up once its node is asked for.
async fn cut_short(url: &str, name: &str, kind: Kind) -> StepError {
    let locks = ZkLocks::connect(url).await.unwrap();
    let backend = locks.backend();
    let attempt = || Attempt::new(name.into(), kind, Owner::new(), Duration::from_secs(10)).unwrap();
    let (first, attempt) = (attempt(), attempt());
    let session = backend.sessions.current().await;
    let try_in = async |attempt| match kind {
        Kind::Permits { .. } => backend.permits.try_in(&session, attempt).await,
        _ => backend.acquirer.try_in(&session, attempt).await,
    };
    // From here on the lock has its directories.
    assert!(try_in(&first).await.unwrap().is_some());
    backend.releaser.release(&first).await.unwrap();
    let mut trying = Box::pin(try_in(&attempt));
    assert!((&mut trying).now_or_never().is_none());
    session.give_up();
    backend.registry.end_session(&session);
    trying.await.unwrap_err()
}
