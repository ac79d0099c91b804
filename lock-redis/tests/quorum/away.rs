//! A server that was away when a hold ended, and has it for longer than its TTL: for as long as it was extended by hand. It is told when
//! it is back.

use futures_util::future::join_all;
use lock_redis::{ClientOptions, GrantId, LeaseOptions, Mutex, MutexGuard, QuorumConfig, QuorumLocks};
use lock_testkit::faults::Injected;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};

use crate::servers::{ALL, PROMPTLY, Servers, eventually, hasty, key, long, ms};

/// The server that is away for a while.
const AWAY: usize = 3;

/// The way to that server.
struct Link(Proxy);

impl Link {
    /// A configuration of all servers in which one is reached over this link.
    fn of(servers: &Servers) -> (Self, QuorumConfig) {
        let link = Proxy::to(servers.each[AWAY].address(), Protocol::Resp).unwrap();
        let urls = servers.each.iter().enumerate().map(|(server, each)| match server {
            AWAY => format!("redis://{}", link.address()),
            _ => format!("redis://{}", each.address()),
        });
        let config = QuorumConfig::new(urls).with_young_servers(true);
        (Self(link), config)
    }

    /// Ends the connections, and refuses others until the faults are healed.
    async fn cut(&self) -> [Injected<'static>; 2] {
        let faults = [Toxic::Refuse, Toxic::Reset].map(|toxic| self.0.inject(LinkFault::new(toxic, Direction::Both)));
        let is_cut = async || (self.0.open_connections() == 0).then_some(());
        eventually("the connection has ended", ms(8000), is_cut).await;
        faults
    }
}

/// A hold of this lock everywhere, for a second, that is extended by hand to a minute.
async fn extended(servers: &Servers, locks: &QuorumLocks, name: &'static str) -> MutexGuard {
    let held = servers.hold_everywhere(&locks.mutex(name).with_ttl(ms(1000))).await;
    held.extend(ms(60_000)).await.unwrap();
    lasts(servers, name).await;
    held
}

/// The lease lasts at that server for as long as it was extended.
async fn lasts(servers: &Servers, name: &str) {
    let is_extended = async || {
        let left = servers.run(AWAY, &["PTTL", &key(name)]).await.as_int();
        left.is_some_and(|left| left > 50_000).then_some(())
    };
    eventually("the lease is extended at that server too", ms(5000), is_extended).await;
}

/// Has the server come back long after the TTL is over: it hears that this grant is nobody's.
async fn is_told_late(servers: &Servers, name: &str, grant: GrantId, faults: [Injected<'static>; 2]) {
    // Longer than a request takes, the TTL on top, and the time between two looks at what is over.
    tokio::time::sleep(ms(6000)).await;
    assert_eq!(servers.holding(ALL, name, grant).await, [AWAY]);
    for fault in faults {
        fault.heal().unwrap();
    }
    eventually("no server has it", ms(8000), async || servers.holding(ALL, name, grant).await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_away_hears_of_the_release_of_a_lease_that_was_extended_beyond_its_ttl() {
    let Some(servers) = Servers::start().await else { return };
    let (link, config) = Link::of(&servers);
    let locks = QuorumLocks::connect_with(config).await.unwrap();
    let held = extended(&servers, &locks, "extended").await;
    let (grant, faults) = (held.grant_id(), link.cut().await);
    held.release().await.unwrap();
    is_told_late(&servers, "extended", grant, faults).await;
}

/// The client that adopts it has never asked for so long a lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_away_hears_of_the_release_of_an_adopted_lease_that_its_former_client_had_extended() {
    let Some(servers) = Servers::start().await else { return };
    let web = servers.client().await;
    let (link, config) = Link::of(&servers);
    let lease = LeaseOptions::new(ms(1000));
    let worker = QuorumLocks::connect_with(config.with_client(hasty().with_lease(lease))).await.unwrap();
    servers.hold_everywhere(&worker.mutex("other")).await.release().await.unwrap();
    let detached = extended(&servers, &web, "adopted").await.detach().await.unwrap();
    let adopted = worker.adopt(&detached).await.unwrap();
    let grant = adopted.grant_id();
    let everywhere = async || (servers.holding(ALL, "adopted", grant).await == ALL).then_some(());
    eventually("all five have it under its new id", ms(8000), everywhere).await;
    lasts(&servers, "adopted").await;
    let faults = link.cut().await;
    adopted.release().await.unwrap();
    is_told_late(&servers, "adopted", grant, faults).await;
}

/// Nothing keeps its client but the guard, as it is where a lock is released last of all.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_away_hears_of_a_release_that_its_client_did_last_of_all() {
    let Some(servers) = Servers::start().await else { return };
    let (link, config) = Link::of(&servers);
    let locks = QuorumLocks::connect_with(config).await.unwrap();
    let held = servers.hold_everywhere(&locks.mutex("last").with_ttl(ms(60_000))).await;
    drop(locks);
    let (grant, faults) = (held.grant_id(), link.cut().await);
    held.release().await.unwrap();
    assert_eq!(servers.holding(ALL, "last", grant).await, [AWAY]);
    for fault in faults {
        fault.heal().unwrap();
    }
    eventually("no server has it", ms(8000), async || servers.holding(ALL, "last", grant).await.is_empty()).await;
    let is_gone = async || link.0.open_connections() == 0;
    eventually("the client, which is gone, has no connection", ms(8000), is_gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_away_hears_of_thousands_of_releases_that_its_client_did_last_of_all() {
    // More than one operation timeout has time for if some are sent in each second.
    const MANY: i64 = 6000;
    let Some(servers) = Servers::start().await else { return };
    let (link, config) = Link::of(&servers);
    let options = ClientOptions::default().with_op_timeout(ms(4000)).with_lease(long());
    let locks = QuorumLocks::connect_with(config.with_client(options)).await.unwrap();
    let last = servers.hold_everywhere(&locks.mutex("last")).await;
    let mutexes = (1..MANY).map(|number| locks.mutex(number.to_string())).collect::<Vec<_>>();
    let others = join_all(mutexes.iter().map(Mutex::lock)).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
    let has_all = async || (servers.run(AWAY, &["DBSIZE"]).await.as_int() == Some(MANY)).then_some(());
    eventually("that server has them too", PROMPTLY, has_all).await;
    drop((locks, mutexes));
    let faults = link.cut().await;
    for released in join_all(others.into_iter().map(MutexGuard::release)).await {
        released.unwrap();
    }
    last.release().await.unwrap();
    assert_eq!(servers.run(AWAY, &["DBSIZE"]).await.as_int(), Some(MANY));
    for fault in faults {
        fault.heal().unwrap();
    }
    servers.have_nothing_left(ALL).await;
}

/// It would keep the others from a majority when another server is down, although the lock was left for less.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_away_when_a_lock_was_left_does_not_keep_it_for_as_long_as_it_was_extended() {
    let Some(servers) = Servers::start().await else { return };
    let (link, config) = Link::of(&servers);
    let locks = QuorumLocks::connect_with(config).await.unwrap();
    let held = extended(&servers, &locks, "left").await;
    let (grant, faults) = (held.grant_id(), link.cut().await);
    held.leave(ms(30_000)).await.unwrap();
    is_told_late(&servers, "left", grant, faults).await;
    for server in ALL {
        let left = servers.held(*server, "left").await;
        assert_eq!(left.is_some(), *server != AWAY, "{server} has {left:?}");
    }
    assert!(locks.mutex("left").try_lock().await.unwrap().is_none(), "it is left until its time is over");
}
