//! Hundreds of waiters of one client: each costs as much as one, whatever their number.

use futures_util::future::join_all;

use crate::meter::Meter;
use crate::support::{LASTING, PROMPTLY, client, eventually, server, soon};

/// The readers behind a writer, each of whose nodes is a name of 57 bytes in a listing.
const READERS: usize = 500;

#[tokio::test]
async fn readers_of_one_client_behind_a_writer_list_their_queue_together() {
    let Some(server) = server().await else { return };
    let (meter, writers) = (Meter::to(server.address()).await, client(server.url(), LASTING).await);
    let (readers, truth) = (client(&meter.url(), LASTING).await, server.client().await.unwrap());
    let written = writers.rwlock("crowd").write().await.unwrap();
    let lock = readers.rwlock("crowd").with_ttl(LASTING);
    let reading = (0..READERS).map(|_| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.read().await })
    });
    let reading: Vec<_> = reading.collect();
    let queue = async || truth.children("/lock/rwlock/crowd").await.unwrap().unwrap_or_default();
    eventually("every reader is in the queue", PROMPTLY, async || queue().await.len() == READERS + 1).await;
    let listing: usize = queue().await.iter().map(|name| name.len() + 4).sum();
    // Answered behind the listings of all of them.
    assert_eq!(lock.inspect().await.unwrap().waiters.len(), READERS);
    let before = meter.bytes();
    written.release().await.unwrap();
    let held = soon("every reader is granted", PROMPTLY * 3, join_all(reading)).await;
    let came = meter.bytes() - before;
    let listings = came / listing as u64;
    assert!(listings < READERS as u64 / 4, "{came} bytes, which are {listings} listings, for {READERS} readers");
    for held in held {
        drop(held.unwrap().unwrap());
    }
}
