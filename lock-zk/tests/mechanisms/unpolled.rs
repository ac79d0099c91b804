//! Calls that are polled once and then kept, as in a `select!` loop or behind a slow consumer: their request is carried out, and nobody takes
//! its answer.

use std::pin::pin;

use futures_util::FutureExt;
use lock_zk::{Error, Owner, RwLock, ZkLocks};
use tokio::task::JoinHandle;

use crate::support::{LASTING, PROMPTLY, client, eventually, server, soon};

/// A client that holds locks and waits for them, and another one.
struct Clients {
    own: ZkLocks,
    other: ZkLocks,
}

impl Clients {
    async fn of(url: &str) -> Self {
        Self { own: client(url, LASTING).await, other: client(url, LASTING).await }
    }
}

/// Keeps a call that was polled once, until whoever waits behind it in the same client has had a turn.
async fn kept<T>(
    what: &str,
    call: impl Future<Output = Result<T, Error>>,
    waiting: JoinHandle<Result<(), Error>>,
) -> T {
    let mut call = pin!(call);
    assert!((&mut call).now_or_never().is_none(), "{what}: it was answered at once");
    soon(what, PROMPTLY, waiting).await.unwrap().unwrap();
    soon("the call itself", PROMPTLY, call).await.unwrap()
}

/// Waits behind a lock that is held, for a turn to read or to write.
async fn waits_for(lock: &RwLock, other: &RwLock, waits: &'static str) -> JoinHandle<Result<(), Error>> {
    // It takes a number, so that the next one is not right behind the holder, and lists.
    assert!(other.try_write().await.unwrap().is_none());
    let next = lock.clone();
    let waiting = tokio::spawn(async move {
        match waits {
            "write" => next.write().await?.release().await,
            _ => next.read().await?.release().await,
        }
    });
    // Answered behind its listing.
    eventually("it waits", PROMPTLY, async || lock.inspect().await.unwrap().waiters.len() == 1).await;
    waiting
}

#[tokio::test]
async fn a_mutex_whose_release_is_kept_without_being_polled_goes_to_the_next() {
    let Some(server) = server().await else { return };
    let clients = Clients::of(server.url()).await;
    let mutex = clients.own.mutex("kept");
    let held = mutex.lock().await.unwrap();
    // It takes a number, so that the next one is not right behind the holder, and lists.
    assert!(clients.other.mutex("kept").try_lock().await.unwrap().is_none());
    let next = mutex.clone();
    let waiting = tokio::spawn(async move { next.lock().await?.release().await });
    // Answered behind its listing.
    eventually("it waits", PROMPTLY, async || mutex.inspect().await.unwrap().waiters.len() == 1).await;
    kept("the next one's turn", held.release(), waiting).await;
}

/// It comes when the node before its own is gone already, and lists nothing.
#[tokio::test]
async fn whoever_comes_behind_a_mutex_whose_release_is_kept_without_being_polled_has_it_soon() {
    let Some(server) = server().await else { return };
    let clients = Clients::of(server.url()).await;
    let mutex = clients.own.mutex("kept");
    let held = mutex.lock().await.unwrap();
    let mut release = pin!(held.release());
    assert!((&mut release).now_or_never().is_none());
    let free = async || mutex.inspect().await.unwrap().holders.is_empty();
    eventually("it is free", PROMPTLY, free).await;
    soon("the next one", PROMPTLY, mutex.lock()).await.unwrap().release().await.unwrap();
    soon("the release", PROMPTLY, release).await.unwrap();
}

#[tokio::test]
async fn a_reentrant_lock_whose_last_release_is_kept_without_being_polled_goes_to_the_next_owner() {
    let Some(server) = server().await else { return };
    let clients = Clients::of(server.url()).await;
    let (lock, [me, you, they]) = (clients.own.reentrant("kept"), [(); 3].map(|()| Owner::new()));
    let (outer, inner) = (lock.lock(&me).await.unwrap(), lock.lock(&me).await.unwrap());
    assert!(clients.other.reentrant("kept").try_lock(&they).await.unwrap().is_none());
    let next = lock.clone();
    let waiting = tokio::spawn(async move { next.lock(&you).await?.release().await });
    eventually("it waits", PROMPTLY, async || lock.inspect().await.unwrap().waiters.len() == 1).await;
    inner.release().await.unwrap();
    kept("the next owner's turn", outer.release(), waiting).await;
}

#[tokio::test]
async fn a_read_or_write_lock_whose_release_is_kept_without_being_polled_goes_to_the_next() {
    let Some(server) = server().await else { return };
    let clients = Clients::of(server.url()).await;
    for [holds, waits] in [["write", "write"], ["write", "read"], ["read", "write"]] {
        let what = format!("{waits} behind {holds}");
        let (lock, other) = (clients.own.rwlock(what.as_str()), clients.other.rwlock(what.as_str()));
        match holds {
            "write" => {
                let held = lock.write().await.unwrap();
                let waiting = waits_for(&lock, &other, waits).await;
                kept(&what, held.release(), waiting).await;
            }
            _ => {
                let held = lock.read().await.unwrap();
                let waiting = waits_for(&lock, &other, waits).await;
                kept(&what, held.release(), waiting).await;
            }
        }
    }
}

#[tokio::test]
async fn a_writer_whose_downgrade_is_kept_without_being_polled_lets_readers_in() {
    let Some(server) = server().await else { return };
    let clients = Clients::of(server.url()).await;
    let lock = clients.own.rwlock("kept");
    let held = lock.write().await.unwrap();
    let waiting = waits_for(&lock, &clients.other.rwlock("kept"), "read").await;
    let mut downgrade = pin!(held.downgrade());
    assert!((&mut downgrade).now_or_never().is_none());
    soon("the reader's turn", PROMPTLY, waiting).await.unwrap().unwrap();
    let reads = soon("the downgrade itself", PROMPTLY, downgrade).await.unwrap();
    reads.release().await.unwrap();
}
