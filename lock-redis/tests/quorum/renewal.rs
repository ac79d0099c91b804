//! Renewals and extensions that some servers do not confirm (C-M22).

use lock_core::driver::{Attempt, Backend, Kind, MutexBackend, Renewal, Renewed};
use lock_redis::{ErrorKind, LossReason, Owner, QuorumLocks};
use lock_testkit::proxy::{Direction, LinkFault, Toxic};

use crate::servers::{ALL, Servers, key, long, ms, often, renewed};

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_that_lost_the_entry_costs_nothing_and_never_gets_it_back() {
    let Some(servers) = Servers::start().await else { return };
    let (locks, other) = (servers.client().await, servers.client().await);
    let held = servers.hold_everywhere(&locks.mutex("renewal").with_lease(often())).await;
    for i in [1, 2] {
        servers.run(i, &["DEL", &key("renewal")]).await;
    }
    held.extend(ms(10_000)).await.unwrap();
    // Through renewals of its own, too.
    renewed(&held, 4).await;
    assert_eq!(servers.holding(ALL, "renewal", held.grant_id()).await, [0, 3, 4]);
    assert!(other.mutex("renewal").try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
    servers.have_nothing_left(ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_that_lost_the_entry_is_a_loss_and_the_others_release_it() {
    let Some(servers) = Servers::start().await else { return };
    let locks = servers.client().await;
    let held = servers.hold_everywhere(&locks.mutex("renewal").with_lease(long())).await;
    for i in [0, 2, 3] {
        servers.run(i, &["DEL", &key("renewal")]).await;
    }
    let error = held.extend(ms(60_000)).await.unwrap_err();
    assert_eq!((error.kind(), error.loss()), (ErrorKind::Lost, Some(&LossReason::Taken)), "{error}");
    assert_eq!(held.lost().await, LossReason::Taken);
    assert!(!held.is_held());
    servers.have_nothing_left(ALL).await;
    let next = locks.mutex("renewal").lock().await.unwrap();
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::NotHeld);
    assert!(next.is_held());
    next.extend(ms(60_000)).await.unwrap();
}

/// The lease may have been extended to hours, for which no later holder would have more than the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_when_a_majority_has_lost_the_entry_releases_it_when_it_is_back() {
    let Some(servers) = Servers::start().await else { return };
    let locks = servers.client().await;
    let held = servers.hold_everywhere(&locks.mutex("renewal").with_lease(long())).await;
    held.extend(ms(3_600_000)).await.unwrap();
    servers.stop(&[4]);
    for i in [0, 1, 2] {
        servers.run(i, &["FLUSHALL"]).await;
    }
    let error = held.extend(ms(3_600_000)).await.unwrap_err();
    assert_eq!(error.loss(), Some(&LossReason::Taken), "{error}");
    servers.cont(&[4]);
    servers.have_nothing_left(ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_without_a_majority_is_unknown_and_deletes_nothing() {
    let Some(servers) = Servers::start().await else { return };
    let locks = servers.client().await;
    let held = servers.hold_everywhere(&locks.mutex("renewal").with_lease(long())).await;
    // One has lost it, two stand still: neither three for it nor three against it.
    servers.run(0, &["DEL", &key("renewal")]).await;
    servers.stop(&[1, 2]);
    let left = held.remaining();
    let error = held.extend(ms(80_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert!(held.is_held() && held.remaining() <= left, "an unknown answer moved the end");
    assert_eq!(servers.holding(&[0, 3, 4], "renewal", held.grant_id()).await, [3, 4]);
    servers.cont(&[1, 2]);
    crate::servers::eventually("the extension succeeds", ms(8000), async || held.extend(ms(80_000)).await.ok()).await;
    assert!(held.remaining() > ms(70_000));
    held.release().await.unwrap();
    servers.have_nothing_left(ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_learns_from_a_majority_who_freed_its_lock() {
    let Some(servers) = Servers::start().await else { return };
    let (locks, operator) = (servers.client().await, servers.client().await);
    let held = locks.mutex("renewal").with_lease(often()).lock().await.unwrap();
    servers.kill(&[2]);
    assert!(operator.mutex("renewal").force_release(held.grant_id(), "it: hangs").await.unwrap());
    let reason = tokio::time::timeout(often().ttl, held.lost()).await.unwrap();
    let LossReason::ForceReleased { by, reason } = reason else { panic!("{reason}") };
    assert!(by.ends_with(&std::process::id().to_string()) && reason == "it: hangs", "{by}: {reason}");
    assert!(!operator.mutex("renewal").force_release(held.grant_id(), "again").await.unwrap());
}

/// A lease that ends before its answers can come is tried again soon; the others have the time that they need.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_too_short_for_its_links_costs_the_others_nothing() {
    let Some(servers) = Servers::start().await else { return };
    let (links, config) = servers.behind_proxies(ALL.len());
    let locks = QuorumLocks::connect_with(config).await.unwrap();
    let backend = locks.backend();
    let attempt = |name: &str, ttl| Attempt::new(name.into(), Kind::Mutex, Owner::new(), ttl).unwrap();
    let (short, long) = (attempt("short", ms(300)), attempt("long", ms(60_000)));
    backend.try_lock(&long).await.unwrap().expect("granted");
    // A third of the short lease is less than a round trip.
    let slow = || Toxic::Delay { by: ms(100), jitter: ms(0) };
    let _far: Vec<_> = links.iter().map(|link| link.inject(LinkFault::new(slow(), Direction::Both))).collect();
    let batch = [Renewal::new(&short, short.ttl), Renewal::new(&long, long.ttl)];
    let answers = backend.renew(&batch).await;
    assert!(matches!(answers[0], Renewed::Unknown(_)), "{answers:?}");
    assert!(matches!(answers[1], Renewed::For(_)), "{answers:?}");
    backend.release(&long).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_could_not_be_left_stays_at_no_server() {
    let Some(servers) = Servers::start().await else { return };
    let locks = servers.client().await;
    let held = servers.hold_everywhere(&locks.mutex("renewal").with_lease(long())).await;
    for i in [0, 2, 3] {
        servers.run(i, &["DEL", &key("renewal")]).await;
    }
    let failed = held.leave(ms(60_000)).await.unwrap_err();
    assert_eq!(failed.error.loss(), Some(&LossReason::Taken), "{failed}");
    assert!(failed.guard.is_none(), "the servers were asked");
    servers.have_nothing_left(ALL).await;
}
