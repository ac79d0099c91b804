//! Nodes of this process: registration, and which waiter is told of what.

use lock_core::driver::Kind;
use lock_testkit::testing::installed;
use lock_testkit_servers::zookeeper::ZooKeeperServer;

use super::incoming::PermitNodes;
use super::permits::MOST_HANDED_OVER;
use super::*;
use crate::client::ClientCrate;
use crate::config::ZkConfig;
use crate::session::Sessions;
use crate::store::layout::Layout;

async fn connect(url: &str) -> (Sessions, Layout) {
    let config = ZkConfig::new(url);
    let options = config.check(ClientCrate::ZookeeperClient).unwrap();
    (Sessions::open(options, Box::new(|_| {})).await.unwrap(), config.layout())
}

#[tokio::test]
async fn a_registration_in_another_session_replaces_the_one_before() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let (sessions, layout) = connect(server.url()).await;
    let registry = Arc::<Registry>::default();
    let (session, grant) = (sessions.current().await, GrantId::random().unwrap());
    let lock = || LockPaths::of(&layout, &"again".into(), Kind::Mutex).unwrap();
    let path = lock().queue_path("again");
    let before = registry.register(grant, &session, lock());
    registry.set_node(&before, Created { path: path.clone(), czxid: 1 });
    let (told, taken) = std::sync::mpsc::channel();
    let again = (registry.clone(), session, lock());
    std::thread::spawn(move || told.send(again.0.register(grant, &again.1, again.2)));
    let taken = tokio::task::spawn_blocking(move || taken.recv_timeout(std::time::Duration::from_secs(5)));
    assert!(taken.await.unwrap().is_ok_and(|registration| registration.node().is_none()), "a deadlock");
    assert!(before.node().is_none() && registry.node_ahead(&path, grant).is_none());
}

#[tokio::test]
async fn the_node_right_before_is_known_if_it_is_of_this_process_and_there() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let (sessions, layout) = connect(server.url()).await;
    let (registry, session) = (Arc::<Registry>::default(), sessions.current().await);
    let lock = || LockPaths::of(&layout, &"behind".into(), Kind::Mutex).unwrap();
    let enter = |number: u32| {
        let grant = GrantId::random().unwrap();
        let registration = registry.register(grant, &session, lock());
        let node = Created { path: format!("{}{number:010}", lock().stem(grant)), czxid: 1 };
        let before = registry.set_node_behind(&registration, node);
        (registration, before.map(|before| before.number))
    };
    assert_eq!(registry.last_role(&lock()), None);
    let (_first, before) = enter(7);
    assert_eq!(before, None);
    assert_eq!(registry.last_role(&lock()), Some(Role::Lock));
    let (second, before) = enter(8);
    assert_eq!(before, Some(7));
    assert_eq!(enter(10).1, None, "somebody else's is between");
    registry.deregister(&second);
    let (last, before) = enter(11);
    assert_eq!(before, Some(10));
    registry.deregister(&last);
    assert_eq!(registry.last_role(&lock()), None, "nobody knows who is last now");
    assert_eq!(enter(12).1, None);
}

/// The directory may have been made anew between the first one's leaving and the coming of whoever waits for it then.
#[tokio::test]
async fn only_whoever_waited_when_the_first_one_was_to_leave_is_told_that_it_is_first_and_is_the_successor() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let (sessions, layout) = connect(server.url()).await;
    let (registry, session) = (Arc::<Registry>::default(), sessions.current().await);
    let lock = || LockPaths::of(&layout, &"first".into(), Kind::Permits { permits: 1, limit: 1 }).unwrap();
    let enter = |number: u32| {
        let grant = GrantId::random().unwrap();
        let registration = registry.register(grant, &session, lock());
        let path = format!("{}{number:010}", lock().stem(grant));
        registry.set_node(&registration, Created { path: path.clone(), czxid: number.into() });
        registration.incoming().open(PermitNodes { permits: 1, new: Vec::new(), record: Vec::new() });
        (registration, path)
    };
    for waits_before in [true, false] {
        let [(first, path), (early, _), (late, _)] = [1, 2, 3].map(enter);
        let gone = waits_before.then(|| registry.node_ahead(&path, early.grant).unwrap());
        let next = registry.waiter_behind(&first);
        let mut late_gone = registry.node_ahead(&path, late.grant).unwrap();
        let permit = lock().permit_path(&format!("{}0000000000", lock().dialect.stem(first.grant, Role::Permit)));
        registry.moved_on(&first, vec![permit], next, BootInstant::FAR_FUTURE);
        if let Some(mut gone) = gone {
            assert_eq!(gone.gone().await, Some(BootInstant::FAR_FUTURE));
        }
        assert_eq!(late_gone.gone().await, None, "told that it is first, waits_before: {waits_before}");
        let successor = registry.recipient_of(&first).map(|successor| successor.registration.grant);
        assert_eq!(successor, waits_before.then_some(early.grant), "waits_before: {waits_before}");
        assert!(registry.recipient_of(&first).is_none(), "it was taken");
        [first, early, late].iter().for_each(|registration| registry.deregister(registration));
        assert!(registry.entries().successors.is_empty());
    }
}

/// A registry of one session, and a semaphore.
struct HandOvers {
    registry: Registry,
    session: Arc<Session>,
    layout: Layout,
}

impl HandOvers {
    async fn connect(url: &str) -> Self {
        let (sessions, layout) = connect(url).await;
        Self { registry: Registry::default(), session: sessions.current().await, layout }
    }

    fn lock(&self, limit: u32) -> LockPaths {
        LockPaths::of(&self.layout, &"handed-over".into(), Kind::Permits { permits: 1, limit }).unwrap()
    }

    fn enter(&self, grant: GrantId, czxid: i64, limit: u32, wants: u32) -> Arc<Registration> {
        let (lock, registration) = (self.lock(limit), self.registry.register(grant, &self.session, self.lock(limit)));
        self.registry.set_node(&registration, Created { path: format!("{}0000000001", lock.stem(grant)), czxid });
        registration.incoming().open(PermitNodes { permits: wants, new: Vec::new(), record: Vec::new() });
        registration
    }

    /// Returns a holder of these permits, by their names, and the one behind it, which wants so many.
    fn holder_and_successor(&self, permits: &[String], limit: u32, wants: u32) -> [Arc<Registration>; 2] {
        let [first, second] = [(); 2].map(|()| GrantId::random().unwrap());
        let [holder, successor] = [self.enter(first, 1, 2, 1), self.enter(second, 2, limit, wants)];
        let _gone = self.registry.node_ahead(&holder.node().unwrap().path, second);
        let next = self.registry.waiter_behind(&holder);
        let permits = permits.iter().map(|stem| self.lock(2).permit_path(&format!("{stem}0000000000"))).collect();
        self.registry.moved_on(&holder, permits, next, BootInstant::FAR_FUTURE);
        [holder, successor]
    }
}

#[tokio::test]
async fn a_successor_wants_no_more_than_the_holder_has_and_has_the_same_limit() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let hand_overs = HandOvers::connect(server.url()).await;
    let (dialect, any) = (hand_overs.lock(2).dialect, GrantId::random().unwrap());
    let one = || dialect.stem(any, Role::Permit);
    let many = |number| vec![one(); number];
    for (permits, limit, wants, is_successor) in [
        (many(1), 2, 1, true),
        (many(1), 5, 1, false),
        (many(1), 2, 2, false),
        (many(2), 2, 1, true),
        (many(2), 2, 2, true),
        (vec![dialect.stem_of_many(any, 30)], 2, 30, true),
        (vec![dialect.stem_of_many(any, 30)], 2, 31, false),
        (many(MOST_HANDED_OVER), 2, 1, true),
        (many(MOST_HANDED_OVER + 1), 2, 1, false),
    ] {
        let [holder, _successor] = hand_overs.holder_and_successor(&permits, limit, wants);
        let successor = hand_overs.registry.recipient_of(&holder);
        let described = format!("{} nodes, limit {limit}, {wants} wanted", permits.len());
        assert_eq!(
            successor.map(|successor| successor.released.len()),
            is_successor.then_some(permits.len()),
            "{described}"
        );
    }
}

#[tokio::test]
async fn a_holder_that_is_none_any_more_has_no_successor_and_a_waiter_with_another_place_is_none() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let hand_overs = HandOvers::connect(server.url()).await;
    let permit = [hand_overs.lock(2).dialect.stem(GrantId::random().unwrap(), Role::Permit)];
    let [holder, _successor] = hand_overs.holder_and_successor(&permit, 2, 1);
    hand_overs.registry.deregister(&holder);
    assert!(hand_overs.registry.recipient_of(&holder).is_none(), "the transaction would name none of its nodes");
    let [holder, successor] = hand_overs.holder_and_successor(&permit, 2, 1);
    hand_overs.enter(successor.grant, 3, 2, 1);
    assert!(hand_overs.registry.recipient_of(&holder).is_none(), "the queue may have been empty");
}

#[tokio::test]
async fn a_waiter_that_leaves_before_the_first_one_has_moved_on_is_not_kept() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let hand_overs = HandOvers::connect(server.url()).await;
    let [first, second] = [(); 2].map(|()| GrantId::random().unwrap());
    let [holder, leaving] = [hand_overs.enter(first, 1, 2, 1), hand_overs.enter(second, 2, 2, 1)];
    let _gone = hand_overs.registry.node_ahead(&holder.node().unwrap().path, second);
    let next = hand_overs.registry.waiter_behind(&holder);
    hand_overs.registry.deregister(&leaving);
    hand_overs.registry.moved_on(&holder, Vec::new(), next, BootInstant::FAR_FUTURE);
    assert!(hand_overs.registry.entries().successors.is_empty());
}

#[tokio::test]
async fn a_successor_that_never_hears_of_it_is_forgotten() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let hand_overs = HandOvers::connect(server.url()).await;
    let permit = [hand_overs.lock(2).dialect.stem(GrantId::random().unwrap(), Role::Permit)];
    let [holder, successor] = hand_overs.holder_and_successor(&permit, 2, 1);
    let found = hand_overs.registry.recipient_of(&holder).unwrap();
    let _ = holder.hand_permits_over(found).await;
    let [_, another] = hand_overs.holder_and_successor(&permit, 2, 1);
    assert!(hand_overs.registry.recipient_of(&holder).is_none(), "it has handed over once");
    hand_overs.registry.deregister(&another);
    hand_overs.registry.deregister(&successor);
    let weak = Arc::downgrade(&successor);
    drop(successor);
    assert!(weak.upgrade().is_none(), "it keeps itself");
}

#[tokio::test]
async fn a_node_that_becomes_known_behind_the_end_of_its_session_is_not_noted() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let (sessions, layout) = connect(server.url()).await;
    let registry = Arc::<Registry>::default();
    let (session, grant) = (sessions.current().await, GrantId::random().unwrap());
    let lock = LockPaths::of(&layout, &"late".into(), Kind::Mutex).unwrap();
    let path = lock.queue_path("late");
    let registration = registry.register(grant, &session, lock);
    let node = || Created { path: path.clone(), czxid: 1 };
    registry.set_node(&registration, node());
    assert!(registry.node_ahead(&path, grant).is_some());
    registry.end_session(&session);
    registry.set_node(&registration, node());
    assert!(registry.node_ahead(&path, grant).is_none(), "whoever stands behind it would wait for ever");
}

#[tokio::test]
async fn the_end_of_a_session_is_told_as_of_before_its_waiters_ask_again() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let (sessions, layout) = connect(server.url()).await;
    let registry = Arc::<Registry>::default();
    let (session, grant) = (sessions.current().await, GrantId::random().unwrap());
    let lock = || LockPaths::of(&layout, &"again".into(), Kind::Mutex).unwrap();
    let (mut notices, registered_at) = (registry.notices(), SystemClock.now());
    registry.register(grant, &session, lock());
    registry.end_session(&session);
    // Of the next session, as far as the registry can tell.
    registry.register(grant, &session, lock());
    let asked_at = SystemClock.now();
    let notice = notices.next().await.unwrap();
    assert_eq!((notice.grant, notice.reason), (grant, LossReason::SessionExpired));
    assert!(registered_at <= notice.lost_by && notice.lost_by <= asked_at);
}
