//! Hundreds of waiters of one client: each costs as much as one, whatever their number.

use std::pin::pin;

use futures_util::FutureExt;
use futures_util::future::{join_all, select_all};

use lock_testkit_servers::zookeeper::ZooKeeperClient;

use crate::meter::Meter;
use crate::support::{LASTING, PROMPTLY, client, eventually, ms, nodes, server, soon};

/// The readers behind a writer.
const READERS: usize = 500;
/// The tasks that wait for one mutex.
const LOCKERS: usize = 500;
/// The waiters for permits.
const WAITERS: usize = 600;

/// Waits until a directory has so many nodes, whose listing is so many bytes.
async fn listing(truth: &ZooKeeperClient, directory: &str, number: usize) -> u64 {
    eventually(&format!("{number} in {directory}"), PROMPTLY * 3, async || {
        let names = truth.children(directory).await.unwrap().unwrap_or_default();
        // Each has its length before it.
        (names.len() == number).then(|| names.iter().map(|name| 4 + name.len() as u64).sum())
    })
    .await
}

/// Asserts that the bytes that came are far fewer listings than there are waiters.
fn few_listings(came: u64, listing: u64, waiters: usize) {
    let listings = came / listing;
    assert!(listings < waiters as u64 / 4, "{came} bytes, which are {listings} listings, for {waiters} waiters");
}

#[tokio::test]
async fn readers_of_one_client_behind_a_writer_list_their_queue_together() {
    let Some(server) = server().await else { return };
    let (meter, writers) = (Meter::to(server.address()).await, client(server.url(), LASTING).await);
    let (readers, truth) = (client(&meter.url(), LASTING).await, server.client().await.unwrap());
    let written = writers.rwlock("crowd").write().await.unwrap();
    let lock = readers.rwlock("crowd").with_ttl(LASTING);
    let before = meter.bytes();
    let reading = (0..READERS).map(|_| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.read().await })
    });
    let reading: Vec<_> = reading.collect();
    let listing = listing(&truth, "/lock/rwlock/crowd", READERS + 1).await;
    // Answered behind the listings of all of them.
    assert_eq!(lock.inspect().await.unwrap().waiters.len(), READERS);
    few_listings(meter.bytes() - before, listing, READERS);
    let before = meter.bytes();
    written.release().await.unwrap();
    let held = soon("every reader is granted", PROMPTLY * 3, join_all(reading)).await;
    few_listings(meter.bytes() - before, listing, READERS);
    for held in held {
        drop(held.unwrap().unwrap());
    }
}

/// The readers could take all that one client may watch, if each of them took a share.
#[tokio::test]
async fn readers_behind_one_writer_leave_room_to_watch_for_those_who_wait_for_another_name() {
    const MANY: usize = 3_000;
    let Some(server) = server().await else { return };
    let (holders, waiters) = (client(server.url(), LASTING).await, client(server.url(), LASTING).await);
    let truth = server.client().await.unwrap();
    let lock = waiters.rwlock("crowd").with_ttl(LASTING);
    let (written, held) =
        (holders.rwlock("crowd").write().await.unwrap(), holders.mutex("other").lock().await.unwrap());
    let reading: Vec<_> = (0..MANY)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.read().await })
        })
        .collect();
    listing(&truth, "/lock/rwlock/crowd", MANY + 1).await;
    let watches = async |number| server.figure("zk_watch_count").await.unwrap() == number;
    eventually("the writer is watched", PROMPTLY, async || watches(1).await).await;
    let other = waiters.mutex("other");
    let waiting = tokio::spawn(async move { other.lock().await });
    eventually("the other name is watched too", PROMPTLY, async || watches(2).await).await;
    held.release().await.unwrap();
    soon("the other name is granted", PROMPTLY, waiting).await.unwrap().unwrap().release().await.unwrap();
    written.release().await.unwrap();
    for held in soon("every reader is granted", PROMPTLY * 3, join_all(reading)).await {
        drop(held.unwrap().unwrap());
    }
    eventually("no watch is left", PROMPTLY, async || watches(0).await).await;
}

/// The call that releases is polled once, which sends its request, and then kept: the readers find out by themselves.
#[tokio::test]
async fn readers_behind_a_writer_of_their_client_whose_release_is_kept_without_being_polled_list_their_queue_together()
{
    // So many that their looks are spread.
    const MANY: usize = 1500;
    let Some(server) = server().await else { return };
    let (meter, truth) = (Meter::to(server.address()).await, server.client().await.unwrap());
    let locks = client(&meter.url(), LASTING).await;
    let lock = locks.rwlock("crowd").with_ttl(LASTING);
    let written = lock.write().await.unwrap();
    let reading = (0..MANY).map(|_| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.read().await })
    });
    let reading: Vec<_> = reading.collect();
    let listing = listing(&truth, "/lock/rwlock/crowd", MANY + 1).await;
    // Answered behind the listings of all of them.
    let seen = lock.inspect().await.unwrap();
    assert_eq!(seen.waiters.len() as u64 + seen.more_waiters, MANY as u64);
    let received = async || server.figure("zk_packets_received").await.unwrap();
    let (requests, before) = (received().await, meter.bytes());
    let mut release = pin!(written.release());
    assert!((&mut release).now_or_never().is_none(), "it was answered at once");
    let held = soon("every reader is granted", PROMPTLY * 3, join_all(reading)).await;
    let (requests, listings) = (received().await - requests, (meter.bytes() - before) / listing);
    let requests = usize::try_from(requests).unwrap();
    // The first one that finds the writer gone tells all of them.
    assert!(requests < MANY / 4 && listings < 10, "{requests} requests, and the bytes of {listings} listings");
    soon("the release itself", PROMPTLY, release).await.unwrap();
    for held in held {
        drop(held.unwrap().unwrap());
    }
}

#[tokio::test]
async fn mutexes_of_one_client_that_come_at_one_moment_list_their_queue_together() {
    let Some(server) = server().await else { return };
    let (meter, holders) = (Meter::to(server.address()).await, client(server.url(), LASTING).await);
    let (waiters, truth) = (client(&meter.url(), LASTING).await, server.client().await.unwrap());
    let held = holders.mutex("crowd").lock().await.unwrap();
    let mutex = waiters.mutex("crowd").with_ttl(LASTING);
    let before = meter.bytes();
    // All of them ask before one has its place.
    let mut locking: Vec<_> = (0..LOCKERS).map(|_| Box::pin(mutex.lock())).collect();
    let waiting = async {
        let listing = listing(&truth, "/lock/mutex/crowd", LOCKERS + 1).await;
        // Answered behind the listings of all of them.
        assert_eq!(mutex.inspect().await.unwrap().waiters.len(), LOCKERS);
        few_listings(meter.bytes() - before, listing, LOCKERS);
    };
    tokio::select! {
        biased;
        granted = select_all(&mut locking) => panic!("granted while another has it: {:?}", granted.0),
        () = waiting => {}
    }
    drop(locking);
    held.release().await.unwrap();
}

/// The name is so long that there would be room for some forty watches, if each of them had one.
#[tokio::test]
async fn readers_that_look_now_and_then_look_at_the_writer_and_not_at_their_queue() {
    const FEWER: usize = 200;
    let Some(server) = server().await else { return };
    let (meter, writers) = (Meter::to(server.address()).await, client(server.url(), LASTING).await);
    let (readers, truth) = (client(&meter.url(), LASTING).await, server.client().await.unwrap());
    let name = "\u{fc}".repeat(500);
    let written = writers.rwlock(name.clone()).write().await.unwrap();
    let lock = readers.rwlock(name).with_ttl(LASTING);
    let reading = (0..FEWER).map(|_| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.read().await })
    });
    let reading: Vec<_> = reading.collect();
    let listing = listing(&truth, &format!("/lock/rwlock/{}", "%C3%BC".repeat(500)), FEWER + 1).await;
    // Answered behind the listings of all of them, for which a busy machine needs more than one operation timeout.
    let all_wait = async || lock.inspect().await.is_ok_and(|seen| seen.waiters.len() == FEWER);
    eventually("every reader waits", PROMPTLY * 3, all_wait).await;
    let before = meter.bytes();
    tokio::time::sleep(ms(4000)).await;
    let came = meter.bytes() - before;
    assert!(came < listing * 20, "{came} bytes in 4 s, which are {} listings", came / listing);
    written.release().await.unwrap();
    for held in soon("every reader is granted", PROMPTLY * 3, join_all(reading)).await {
        drop(held.unwrap().unwrap());
    }
}

#[tokio::test]
async fn a_try_for_a_permit_does_not_read_who_waits_while_all_are_taken() {
    let Some(server) = server().await else { return };
    let (meter, others) = (Meter::to(server.address()).await, client(server.url(), LASTING).await);
    let (tries, truth) = (client(&meter.url(), LASTING).await, server.client().await.unwrap());
    let crowd = others.semaphore("crowd", 1).with_ttl(LASTING);
    let held = crowd.acquire().await.unwrap();
    let waiting = (0..WAITERS).map(|_| {
        let crowd = crowd.clone();
        tokio::spawn(async move { crowd.acquire().await })
    });
    let waiting: Vec<_> = waiting.collect();
    let listing = listing(&truth, "/lock/semaphore/crowd/locks", WAITERS).await;
    let (semaphore, before) = (tries.semaphore("crowd", 1), meter.bytes());
    assert!(soon("the try", PROMPTLY, semaphore.try_acquire()).await.unwrap().is_none());
    let came = meter.bytes() - before;
    assert!(came < listing * 2, "{came} bytes for a try, where the queue is one of {listing}");
    waiting.iter().for_each(|waiting| waiting.abort());
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_try_for_a_permit_reads_no_more_of_who_waits_than_there_are_permits() {
    let Some(server) = server().await else { return };
    let (meter, others) = (Meter::to(server.address()).await, client(server.url(), LASTING).await);
    let (tries, truth) = (client(&meter.url(), LASTING).await, server.client().await.unwrap());
    let crowd = others.semaphore("crowd", 10).with_ttl(LASTING);
    let held = crowd.acquire_many(5).await.unwrap();
    let wait = || {
        let crowd = crowd.clone();
        tokio::spawn(async move { crowd.acquire_many(10).await })
    };
    // The others find it there, and do not try without a place in the queue.
    let mut waiting = vec![wait()];
    listing(&truth, "/lock/semaphore/crowd/locks", 1).await;
    waiting.extend((1..WAITERS).map(|_| wait()));
    let listing = listing(&truth, "/lock/semaphore/crowd/locks", WAITERS).await;
    let (semaphore, before) = (tries.semaphore("crowd", 10), meter.bytes());
    assert!(soon("the try", PROMPTLY, semaphore.try_acquire()).await.unwrap().is_none());
    let came = meter.bytes() - before;
    assert!(came < listing * 3, "{came} bytes for a try, where the queue is one of {listing}");
    waiting.iter().for_each(|waiting| waiting.abort());
    held.release().await.unwrap();
}

#[tokio::test]
async fn waits_that_are_dropped_before_they_were_sent_cost_the_servers_nothing() {
    let Some(server) = server().await else { return };
    let (holders, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let held = holders.mutex("crowd").with_ttl(LASTING).lock().await.unwrap();
    let waiters = client(server.url(), LASTING).await;
    let mutex = waiters.mutex("crowd").with_ttl(LASTING);
    let received = async || server.figure("zk_packets_received").await.unwrap();
    let before = received().await;
    // The first one of them goes at its call; the others are dropped in the same turn, in which nothing else is sent.
    let mut waiting: Vec<_> = (0..LOCKERS).map(|_| Box::pin(mutex.lock())).collect();
    for waiting in &mut waiting {
        assert!(waiting.now_or_never().is_none(), "granted while another has it");
    }
    drop(waiting);
    // Whatever they had asked for is looked for by then.
    soon("the end of the client", PROMPTLY * 3, waiters.close()).await.unwrap();
    let came = usize::try_from(received().await - before).unwrap();
    assert!(came < LOCKERS / 4, "{came} requests for {LOCKERS} waits that were not sent");
    assert_eq!(nodes(&truth, "crowd").await.len(), 1, "a place is left");
    held.release().await.unwrap();
}
