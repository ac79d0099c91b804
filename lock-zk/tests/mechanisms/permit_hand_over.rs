//! Permits that stay within a process: a holder hands them over to the next waiter by one transaction.

use std::pin::pin;

use futures_util::FutureExt;
use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit_servers::zookeeper::ZooKeeperClient;
use lock_zk::{Error, ErrorKind, Permit, Semaphore, ZkLocks};
use tokio::task::JoinHandle;

use crate::support::{LASTING, PROMPTLY, client, eventually, fails, link, ms, over, server, soon};

type Waiting = JoinHandle<Result<Permit, Error>>;

fn semaphore(locks: &ZkLocks) -> Semaphore {
    locks.semaphore("handed-over", 1).with_ttl(ms(60_000))
}

async fn listed(truth: &ZooKeeperClient, directory: &str) -> Vec<String> {
    let directory = format!("/lock/semaphore/handed-over/{directory}");
    let names = truth.children(&directory).await.unwrap().unwrap_or_default();
    names.into_iter().map(|name| format!("{directory}/{name}")).collect()
}

async fn waits(truth: &ZooKeeperClient, locks: &ZkLocks, number: usize) -> Waiting {
    let wanted = semaphore(locks);
    let waiting = tokio::spawn(async move { wanted.acquire().await });
    eventually("it waits", PROMPTLY, async || listed(truth, "locks").await.len() == number).await;
    // Answered behind the listing of whoever waits, who therefore knows for whom.
    let asked = semaphore(locks);
    eventually("it is in the queue", PROMPTLY, async || asked.inspect().await.unwrap().waiters.len() == number).await;
    waiting
}

/// A holder that got its permit in the queue, and the one behind it, which waited by then.
async fn holder_and_successor(truth: &ZooKeeperClient, locks: &ZkLocks) -> (Permit, Waiting) {
    let before = semaphore(locks).acquire().await.unwrap();
    let (first, second) = (waits(truth, locks, 1).await, waits(truth, locks, 2).await);
    before.release().await.unwrap();
    (soon("the first in the queue", PROMPTLY, first).await.unwrap().unwrap(), second)
}

async fn is_free(truth: &ZooKeeperClient, locks: &ZkLocks) {
    eventually("nothing is left", PROMPTLY, async || {
        listed(truth, "locks").await.is_empty() && listed(truth, "leases").await.is_empty()
    })
    .await;
    soon("it is free", PROMPTLY, semaphore(locks).acquire()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_permit_whose_hand_over_has_no_answer_is_the_successors() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let a = client(&over([&link]), LASTING).await;
    let (held, successor) = holder_and_successor(&truth, &a).await;
    let (node, place) = (listed(&truth, "leases").await.remove(0), listed(&truth, "locks").await.remove(0));
    // The successor's place is in no request of the holder but the one that hands over.
    let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, place));
    fails(soon("the release", PROMPTLY, held.release()).await, ErrorKind::Indeterminate);
    lost.heal().unwrap();
    let held = soon("the successor", PROMPTLY, successor).await.unwrap().unwrap();
    let leases = listed(&truth, "leases").await;
    assert!(leases.len() == 1 && leases[0] != node, "{leases:?}");
    held.release().await.unwrap();
    is_free(&truth, &a).await;
}

#[tokio::test]
async fn a_successor_whose_place_is_gone_is_none() {
    let Some(server) = server().await else { return };
    let (a, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let (held, successor) = holder_and_successor(&truth, &a).await;
    assert!(truth.delete(&listed(&truth, "locks").await[0]).await.unwrap());
    soon("the release", PROMPTLY, held.release()).await.unwrap();
    soon("it has asked for another place", PROMPTLY, successor).await.unwrap().unwrap().release().await.unwrap();
    is_free(&truth, &a).await;
}

#[tokio::test]
async fn a_permit_that_somebody_else_deleted_is_handed_over_to_nobody() {
    let Some(server) = server().await else { return };
    let (a, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let (held, successor) = holder_and_successor(&truth, &a).await;
    assert!(truth.delete(&listed(&truth, "leases").await[0]).await.unwrap());
    fails(soon("the release", PROMPTLY, held.release()).await, ErrorKind::NotHeld);
    let held = soon("the successor counts", PROMPTLY, successor).await.unwrap().unwrap();
    assert_eq!(listed(&truth, "leases").await.len(), 1);
    held.release().await.unwrap();
    is_free(&truth, &a).await;
}

#[tokio::test]
async fn a_successor_that_is_dropped_under_its_hand_over_keeps_nothing() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let a = client(&over([&link]), LASTING).await;
    for is_sent in [false, true] {
        let (held, successor) = holder_and_successor(&truth, &a).await;
        let place = listed(&truth, "locks").await.remove(0);
        let hold = LinkFault::new(Toxic::Hold, Direction::ToClient).on_request(1, place);
        let answers = is_sent.then(|| link.inject(hold));
        let mut release = Box::pin(held.release());
        assert!((&mut release).now_or_never().is_none());
        if let Some(answers) = &answers {
            answers.applied(PROMPTLY).await.unwrap();
        }
        successor.abort();
        assert!(successor.await.unwrap_err().is_cancelled());
        if let Some(answers) = answers {
            answers.heal().unwrap();
        }
        soon("the release", PROMPTLY, release).await.unwrap();
        is_free(&truth, &a).await;
    }
}

#[tokio::test]
async fn a_release_that_is_dropped_hands_over_all_the_same() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let a = client(&over([&link]), LASTING).await;
    let (held, successor) = holder_and_successor(&truth, &a).await;
    let place = listed(&truth, "locks").await.remove(0);
    let answers = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient).on_request(1, place));
    assert!(held.release().now_or_never().is_none());
    answers.applied(PROMPTLY).await.expect("no request has named the successor's place");
    answers.heal().unwrap();
    soon("the successor", PROMPTLY, successor).await.unwrap().unwrap().release().await.unwrap();
    is_free(&truth, &a).await;
}

/// Its node is being deleted, and the answer has not come yet.
#[tokio::test]
async fn nothing_is_handed_over_to_a_waiter_that_has_given_up() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let a = client(&over([&link]), LASTING).await;
    let (held, successor) = holder_and_successor(&truth, &a).await;
    let place = listed(&truth, "locks").await.remove(0);
    let answers = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient).on_request(1, place.clone()));
    let handed_over = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(2, place));
    successor.abort();
    assert!(successor.await.unwrap_err().is_cancelled());
    answers.applied(PROMPTLY).await.unwrap();
    let mut release = Box::pin(held.release());
    assert!((&mut release).now_or_never().is_none());
    answers.heal().unwrap();
    soon("the release", PROMPTLY, release).await.unwrap();
    assert!(handed_over.heal().is_err(), "a second request has named its place");
    is_free(&truth, &a).await;
}

/// Its place goes for its permit, and it does not hear of that.
#[tokio::test]
async fn whoever_is_behind_a_successor_that_is_kept_without_being_polled_gets_what_is_free() {
    let Some(server) = server().await else { return };
    let [own, other] = [client(server.url(), LASTING).await, client(server.url(), LASTING).await];
    let two = own.semaphore("of two", 2).with_ttl(ms(60_000));
    // Answered behind the listing of whoever waits.
    let waiting = async |number| {
        eventually("they wait", PROMPTLY, async || two.inspect().await.unwrap().waiters.len() == number).await;
    };
    let acquire = || {
        let two = two.clone();
        tokio::spawn(async move { two.acquire().await })
    };
    let (first, second) = (two.acquire().await.unwrap(), two.acquire().await.unwrap());
    let before = acquire();
    waiting(1).await;
    let mut successor = pin!(two.acquire());
    tokio::select! {
        biased;
        permit = &mut successor => panic!("three of two: {permit:?}"),
        () = waiting(2) => {}
    }
    // It takes a number, so that the next one is not right behind the successor, and lists.
    assert!(other.semaphore("of two", 2).try_acquire().await.unwrap().is_none());
    let behind = acquire();
    waiting(3).await;
    first.release().await.unwrap();
    let held = soon("the first in the queue", PROMPTLY, before).await.unwrap().unwrap();
    held.release().await.unwrap();
    second.release().await.unwrap();
    let held = soon("the one behind", PROMPTLY, behind).await.unwrap().unwrap();
    assert_eq!(two.available().await.unwrap(), 0, "the successor has none");
    held.release().await.unwrap();
    soon("the successor", PROMPTLY, successor).await.unwrap().release().await.unwrap();
}
