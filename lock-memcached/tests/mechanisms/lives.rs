//! Requests that meet another life of the server than the one they were meant for, in which the same CAS number is that of
//! somebody else's item. Numbers begin anew with each start, so that is a matter of counting.

use std::sync::mpsc;
use std::time::Duration;

use lock_memcached::{LeaseOptions, MemcachedConfig, MemcachedLocks};
use lock_testkit::ms;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit::testing::about_time;
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{LEASE, config, eventually, opened, pass, server};

/// More numbers than the server gives to clients that wait for a quarantine to end.
const BEYOND: u64 = 1000;
/// Longer than a restart and its quarantine take.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_release_that_the_network_holds_over_a_restart_frees_nobody_else_s_lock() {
    about_time(async || held_releases(2).await);
}

#[test]
#[ignore = "takes minutes"]
fn fifty_releases_that_the_network_holds_over_a_restart_free_nobody_else_s_lock() {
    about_time(async || held_releases(50).await);
}

async fn held_releases(rounds: usize) {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let mut far = unrenewed(&server);
    far.url = format!("memcached://{}", link.address());
    let (late, next) = (opened(far).await, opened(unrenewed(&server)).await);
    for round in 0..rounds {
        count_to(&server, BEYOND).await;
        let guard = late.mutex("held").try_lock_for(PATIENCE).await.unwrap().unwrap();
        let number = number_of(&server, "lock:mutex:held").await.unwrap();
        eventually("its holder is described, so that nothing else is sent", async || {
            late.mutex("held").inspect().await.unwrap().holders.iter().any(|holder| holder.grant.is_some())
        })
        .await;
        // The release goes over a new connection, which is open to the client, and not to the server yet.
        let cut = link.inject(LinkFault::new(Toxic::Reset, Direction::Both));
        cut.applied(PATIENCE).await.unwrap();
        eventually("every connection has ended", async || link.open_connections() == 0).await;
        cut.heal().unwrap();
        let held = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer));
        let before = link.connections();
        let release = tokio::spawn(guard.release());
        eventually("it is on its way", async || link.connections() > before).await;

        server.restart().await.unwrap();
        next.mutex("first").try_lock_for(PATIENCE).await.unwrap().unwrap().release().await.unwrap();
        count_to(&server, number - 1).await;
        let theirs = next.mutex("held").try_lock().await.unwrap().unwrap();
        assert_eq!(number_of(&server, "lock:mutex:held").await, Some(number), "round {round}: not the same number");
        held.heal().unwrap();
        let _ = release.await.unwrap();
        let there = number_of(&server, "lock:mutex:held").await;
        assert!(there.is_some() || !theirs.is_held(), "round {round}: the late release freed the next holder's lock");
        let _ = theirs.release().await;
    }
}

#[test]
fn a_waiting_writer_that_slept_over_a_restart_does_not_take_another_one_s_lock() {
    about_time(async || sleeping_writers(2).await);
}

#[test]
#[ignore = "takes minutes"]
fn fifty_waiting_writers_that_slept_over_a_restart_take_nobody_else_s_lock() {
    about_time(async || sleeping_writers(50).await);
}

async fn sleeping_writers(rounds: usize) {
    const WRITER: &str = "lock:rwlock:held:w";
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let next = opened(unrenewed(&server)).await;
    for round in 0..rounds {
        count_to(&server, BEYOND).await;
        // Somebody reads.
        assert!(server.client().add("lock:rwlock:held:0", "1234567890123456789", 0).await.unwrap());
        let mut writer = Sleeper::begin(config(&server));
        eventually("it waits", async || number_of(&server, WRITER).await.is_some()).await;
        pass(LEASE / 4).await;
        writer.sleeps();
        // What it had sent is carried out.
        pass(LEASE / 20).await;
        let number = number_of(&server, WRITER).await.unwrap();

        server.restart().await.unwrap();
        next.mutex("first").try_lock_for(PATIENCE).await.unwrap().unwrap().release().await.unwrap();
        count_to(&server, number - 1).await;
        let theirs = next.rwlock("held").try_write().await.unwrap().unwrap();
        writer.wakes();
        while theirs.is_held() {
            let granted = writer.is_granted();
            assert!(!granted || !theirs.is_held(), "round {round}: two writers");
            pass(ms(1)).await;
        }
        let _ = theirs.release().await;
        eventually("it gets the lock", async || writer.is_granted()).await;
    }
}

/// Otherwise the next life's tokens might be lower: it begins at its own instant, and with a count of nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_count_what_was_stored_since_their_epoch_was_made() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    count_to(&server, BEYOND).await;
    let locks = MemcachedLocks::connect_with(config(&server)).await.unwrap();
    let (closed, made_as) = server.client().gets("lock:epoch").await.unwrap().unwrap();
    let closed: u64 = String::from_utf8(closed).unwrap().parse().unwrap();
    assert_eq!(closed % 2, 0, "it is open already");
    let micros = closed % (1 << 54) / 2;
    let guard = locks.mutex("held").try_lock_for(PATIENCE).await.unwrap().unwrap();
    let token = guard.fencing_token().unwrap().as_u64();
    let stored = number_of(&server, "lock:mutex:held").await.unwrap() - made_as;
    assert!(token > micros && token <= micros + stored, "{} beyond {stored} stores", token - micros);
    guard.release().await.unwrap();
}

/// A waiting writer on a thread of its own, which can be suspended as a process can.
struct Sleeper {
    suspend: mpsc::Sender<mpsc::Receiver<()>>,
    wake: Option<mpsc::Sender<()>>,
    granted: mpsc::Receiver<()>,
}

impl Sleeper {
    fn begin(config: MemcachedConfig) -> Self {
        let (suspend, suspended) = mpsc::channel::<mpsc::Receiver<()>>();
        let (grant, granted) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let locks = MemcachedLocks::connect_with(config).await.unwrap();
                tokio::spawn(async move {
                    let guard = locks.rwlock("held").write().await.unwrap();
                    grant.send(()).unwrap();
                    guard.release().await.unwrap();
                });
                loop {
                    match suspended.try_recv() {
                        Ok(until) => drop(until.recv()),
                        Err(mpsc::TryRecvError::Empty) => pass(ms(1)).await,
                        Err(mpsc::TryRecvError::Disconnected) => return,
                    }
                }
            });
        });
        Self { suspend, wake: None, granted }
    }

    fn sleeps(&mut self) {
        let (wake, until) = mpsc::channel();
        self.suspend.send(until).unwrap();
        self.wake = Some(wake);
    }

    fn wakes(&mut self) {
        self.wake = None;
    }

    fn is_granted(&self) -> bool {
        self.granted.try_recv().is_ok()
    }
}

/// Leases that are not renewed, so that their items keep their numbers, and requests that may be held for long.
fn unrenewed(server: &MemcachedServer) -> MemcachedConfig {
    let mut config = config(server);
    config.client.lease = LeaseOptions::new(LEASE).with_auto_renew(false);
    config.client.op_timeout = PATIENCE;
    config
}

async fn number_of(server: &MemcachedServer, key: &str) -> Option<u64> {
    server.client().gets(key).await.unwrap().map(|(_, number)| number)
}

/// Stores items until the last one has this number.
async fn count_to(server: &MemcachedServer, number: u64) {
    let stored = async || {
        server.client().command("set count 0 0 1\r\n1").await.unwrap();
        number_of(server, "count").await.unwrap()
    };
    let mut last = stored().await;
    while last < number {
        last = stored().await;
    }
}
