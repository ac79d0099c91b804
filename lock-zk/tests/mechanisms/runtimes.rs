//! A client whose own runtime is gone, or is not driven any more, used in another one: no wait outlasts its patience for ever. One whose
//! process stood still goes on.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lock_testkit::testing::StoppedRuntime;
use lock_testkit_servers::zookeeper::{ZooKeeperClient, ZooKeeperServer};
use lock_zk::{ClientOptions, Error, ErrorKind, MutexGuard, ZkConfig, ZkLocks};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{LASTING, SESSION, client, connected, eventually, ms, nodes, server, soon};

/// The time within which each wait ends: its patience is a part of it.
const AT_LAST: Duration = ms(30_000);
const PATIENCE: Duration = ms(1000);

/// The end of a runtime's work.
#[derive(Debug, Clone, Copy)]
enum End {
    /// It is dropped, with all of its tasks.
    Dropped,
    /// Nobody drives it any more.
    Left,
}

/// A runtime on a thread of its own, and the client that was connected in it.
struct Elsewhere {
    locks: ZkLocks,
    stop: oneshot::Sender<End>,
    stopped: oneshot::Receiver<()>,
    /// Held as long as a runtime that is not dropped is to live.
    lives_on: mpsc::Sender<()>,
}

impl Elsewhere {
    async fn connect(server: &ZooKeeperServer) -> Self {
        let mut options = ClientOptions::default();
        options.patience = PATIENCE;
        let config = ZkConfig::new(server.url()).with_session_timeout(SESSION).with_tick_time(ms(200));
        let config = config.with_client(options);
        let ((give, given), (stop, told)) = (oneshot::channel(), oneshot::channel());
        let ((tell, stopped), (lives_on, is_over)) = (oneshot::channel(), mpsc::channel());
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let end = runtime.block_on(async move {
                assert!(give.send(connected(config).await).is_ok());
                told.await
            });
            let left = matches!(end, Ok(End::Left)).then_some(runtime);
            // Here and below: the test may have failed meanwhile.
            let _ = tell.send(());
            let _: Result<(), _> = is_over.recv();
            drop(left);
        });
        let locks = soon("connected elsewhere", AT_LAST, given).await.unwrap();
        Self { locks, stop, stopped, lives_on }
    }

    /// Ends the work of the runtime, and returns the client.
    async fn stop(self, end: End) -> Stopped {
        assert!(self.stop.send(end).is_ok());
        soon("stopped", AT_LAST, self.stopped).await.unwrap();
        Stopped { locks: self.locks, _lives_on: self.lives_on }
    }
}

/// A client whose runtime does nothing any more; one that lives on does so as long as this.
struct Stopped {
    locks: ZkLocks,
    _lives_on: mpsc::Sender<()>,
}

/// A wait of this client for a mutex, in the runtime of the test.
fn waits(locks: &ZkLocks, name: &str) -> JoinHandle<Result<MutexGuard, Error>> {
    let mutex = locks.mutex(name);
    tokio::spawn(async move { mutex.lock().await })
}

/// The wait ends, by one of the errors that say that nobody has answered.
async fn ends(waiting: JoinHandle<Result<MutexGuard, Error>>) {
    let error = soon("the wait ends", AT_LAST, waiting).await.unwrap().unwrap_err();
    let kinds = [ErrorKind::Closed, ErrorKind::Indeterminate, ErrorKind::Unavailable];
    assert!(kinds.contains(&error.kind()), "{error}");
}

async fn are(truth: &ZooKeeperClient, name: &str, number: usize) {
    eventually(&format!("{number} in the queue"), AT_LAST, async || nodes(truth, name).await.len() == number).await;
}

/// A mutex and a permit are asked for when the runtime does nothing any more.
async fn begins_then(how: End) {
    let Some(server) = server().await else { return };
    let stopped = Elsewhere::connect(&server).await.stop(how).await;
    let semaphore = stopped.locks.semaphore("late", 1);
    let permit = tokio::spawn(async move { semaphore.acquire().await.map(drop) });
    ends(waits(&stopped.locks, "late")).await;
    soon("the wait for a permit ends", AT_LAST, permit).await.unwrap().unwrap_err();
}

#[tokio::test]
async fn a_wait_that_begins_when_the_runtime_of_its_client_is_gone_ends() {
    begins_then(End::Dropped).await;
}

#[tokio::test]
async fn a_wait_that_begins_when_nobody_drives_the_runtime_of_its_client_ends() {
    begins_then(End::Left).await;
}

/// A mutex is asked for when the servers have ended the session, too.
async fn begins_behind_the_session(how: End) {
    let Some(server) = server().await else { return };
    let truth = server.client().await.unwrap();
    let elsewhere = Elsewhere::connect(&server).await;
    let held = elsewhere.locks.mutex("held").lock().await.unwrap();
    let stopped = elsewhere.stop(how).await;
    are(&truth, "held", 0).await;
    assert!(!held.is_held());
    ends(waits(&stopped.locks, "late")).await;
}

#[tokio::test]
async fn a_wait_that_begins_behind_the_session_of_a_client_whose_runtime_is_gone_ends() {
    begins_behind_the_session(End::Dropped).await;
}

#[tokio::test]
async fn a_wait_that_begins_behind_the_session_of_a_client_whose_runtime_nobody_drives_ends() {
    begins_behind_the_session(End::Left).await;
}

/// One waits behind a holder of another client, and one behind a holder of its own, before the runtime does nothing any more.
async fn waits_before(how: End) {
    let Some(server) = server().await else { return };
    let (other, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let elsewhere = Elsewhere::connect(&server).await;
    let theirs = other.mutex("theirs").lock().await.unwrap();
    let ours = elsewhere.locks.mutex("ours").with_ttl(AT_LAST).lock().await.unwrap();
    let waiting = ["theirs", "ours"].map(|name| waits(&elsewhere.locks, name));
    are(&truth, "theirs", 2).await;
    are(&truth, "ours", 2).await;
    let stopped = elsewhere.stop(how).await;
    for waiting in waiting {
        ends(waiting).await;
    }
    theirs.release().await.unwrap();
    drop((ours, stopped));
    are(&truth, "ours", 0).await;
    are(&truth, "theirs", 0).await;
}

#[tokio::test]
async fn a_wait_behind_a_holder_ends_when_the_runtime_of_its_client_is_gone() {
    waits_before(End::Dropped).await;
}

#[tokio::test]
async fn a_wait_behind_a_holder_ends_when_nobody_drives_the_runtime_of_its_client() {
    waits_before(End::Left).await;
}

/// Its session has ended meanwhile, and its patience is over.
#[tokio::test]
async fn a_wait_of_a_process_that_stood_still_goes_on_in_the_next_session() {
    let Some(server) = server().await else { return };
    let (other, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let held = other.mutex("held").with_ttl(AT_LAST).lock().await.unwrap();
    let mut options = ClientOptions::default();
    options.patience = PATIENCE;
    let config = ZkConfig::new(server.url()).with_session_timeout(SESSION).with_tick_time(ms(200)).with_client(options);
    let waiting = StoppedRuntime::run(async move || {
        let mutex = connected(config).await.mutex("held");
        vec![tokio::spawn(async move { mutex.lock().await?.release().await })]
    });
    are(&truth, "held", 2).await;
    let ended = waiting.stand_still(SESSION + PATIENCE + ms(2000), AT_LAST);
    // The servers have ended its session; it waits again when it goes on.
    are(&truth, "held", 1).await;
    are(&truth, "held", 2).await;
    held.release().await.unwrap();
    ended.await.unwrap();
}
