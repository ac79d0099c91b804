//! Semaphores: the nodes that Curator's clients count, and living beside clients that take their permits one by one.

use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit::testing::renewed;
use lock_testkit_servers::zookeeper::{NodeKind, ZooKeeperClient};
use lock_zk::{ErrorKind, LockName, LossReason};

use crate::support::{LASTING, PROMPTLY, client, eventually, fails, link, ms, over, server, soon, watched};

const UUID: &str = "_c_0f8fad5b-d9cb-469f-a165-70867728950e";

async fn children(truth: &ZooKeeperClient, directory: &str) -> Vec<String> {
    let mut names = truth.children(directory).await.unwrap().unwrap_or_default();
    names.sort_by_key(|name| name[name.len() - 10..].to_owned());
    names
}

/// Does what one of Curator's clients does first and second to have a permit.
async fn stands_in_line(foreign: &ZooKeeperClient) -> String {
    let stem = format!("/api/locks/{UUID}-lock-");
    foreign.create(&stem, b"10.0.0.1", NodeKind::EphemeralSequential).await.unwrap().unwrap()
}

async fn takes_one(foreign: &ZooKeeperClient) -> String {
    let stem = format!("/api/leases/{UUID}-lease-");
    foreign.create(&stem, b"10.0.0.1", NodeKind::EphemeralSequential).await.unwrap().unwrap()
}

#[tokio::test]
async fn each_permit_is_a_node_as_curator_counts_them() {
    let Some(server) = server().await else { return };
    let (a, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let api = a.semaphore(LockName::from_key("/api").unwrap(), 2000);
    let mut three = api.acquire_many(3).await.unwrap();
    let leases = children(&truth, "/api/leases").await;
    assert_eq!(leases.len(), 3, "{leases:?}");
    assert!(leases.iter().all(|lease| lease.starts_with("_c_") && lease.contains("-lease-")), "{leases:?}");
    assert!(children(&truth, "/api/locks").await.is_empty(), "still in the queue after the grant");
    three.release_some(1).await.unwrap();
    assert_eq!(children(&truth, "/api/leases").await.len(), 2);
    let error = fails(api.try_acquire_many(1001).await, ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("1000"), "{error}");
    assert!(children(&truth, "/api/locks").await.is_empty(), "the refused try is still in the queue");
    three.release().await.unwrap();
    assert!(children(&truth, "/api/leases").await.is_empty());
}

#[tokio::test]
async fn permits_of_other_clients_count() {
    let Some(server) = server().await else { return };
    let (a, foreign) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let api = a.semaphore(LockName::from_key("/api").unwrap(), 2);
    api.acquire().await.unwrap().release().await.unwrap();
    let theirs = takes_one(&foreign).await;
    assert_eq!(api.available().await.unwrap(), 1);
    assert!(api.try_acquire_many(2).await.unwrap().is_none(), "two of one free permit");
    let ours = api.try_acquire().await.unwrap().unwrap();
    let waiter = api.clone();
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    eventually("in the queue", PROMPTLY, async || children(&foreign, "/api/locks").await.len() == 1).await;
    foreign.delete(&theirs).await.unwrap();
    soon("woken by their release", PROMPTLY, waiting).await.unwrap().unwrap().release().await.unwrap();
    ours.release().await.unwrap();
}

#[tokio::test]
async fn a_client_that_takes_its_permits_one_by_one_gets_its_turn() {
    let Some(server) = server().await else { return };
    let (a, foreign) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let api = a.semaphore(LockName::from_key("/api").unwrap(), 2);
    api.acquire().await.unwrap().release().await.unwrap();
    let first = takes_one(&foreign).await;
    let waiter = api.clone();
    let waiting = tokio::spawn(async move { waiter.acquire_many(2).await });
    eventually("ours is first in the queue", PROMPTLY, async || children(&foreign, "/api/locks").await.len() == 1)
        .await;
    let place = stands_in_line(&foreign).await;
    eventually("theirs is first in the queue", PROMPTLY, async || {
        children(&foreign, "/api/locks").await.first().is_some_and(|first| place.ends_with(first.as_str()))
    })
    .await;
    let second = takes_one(&foreign).await;
    foreign.delete(&place).await.unwrap();
    assert!(!waiting.is_finished(), "granted although both permits are taken");
    foreign.delete(&first).await.unwrap();
    foreign.delete(&second).await.unwrap();
    soon("ours gets both", PROMPTLY, waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_grant_of_which_one_permit_is_gone_is_lost_with_all_of_them() {
    let Some(server) = server().await else { return };
    let (a, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let api = a.semaphore(LockName::from_key("/api").unwrap(), 3);
    let held = api.clone().with_lease(watched()).acquire_many(3).await.unwrap();
    let one = children(&truth, "/api/leases").await.remove(1);
    truth.delete(&format!("/api/leases/{one}")).await.unwrap();
    assert_eq!(soon("the holder is told", PROMPTLY, held.lost()).await, LossReason::Taken);
    eventually("the others are released", PROMPTLY, async || api.available().await.unwrap() == 3).await;
}

#[tokio::test]
async fn a_great_many_permits_are_one_node_that_can_be_split() {
    let Some(server) = server().await else { return };
    let (a, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let many = a.semaphore("many", 5_000);
    let mut held = many.acquire_many(4_000).await.unwrap();
    assert_eq!(children(&truth, "/lock/semaphore/many/leases").await.len(), 1);
    assert!(many.try_acquire_many(1_001).await.unwrap().is_none());
    let token = async || many.inspect().await.unwrap().holders[0].token;
    let before = token().await;
    held.release_some(1_500).await.unwrap();
    assert_eq!(token().await, before, "the token is that of the grant");
    assert_eq!((held.permits(), many.available().await.unwrap()), (2_500, 2_500));
    held.release().await.unwrap();
    assert_eq!(many.available().await.unwrap(), 5_000);
}

#[tokio::test]
async fn permits_of_a_long_name_fit_into_a_request() {
    let Some(server) = server().await else { return };
    let a = client(server.url(), LASTING).await;
    let long = a.semaphore("\u{fc}".repeat(500), 1_000);
    let mut held = soon("the grant", PROMPTLY, long.acquire_many(1_000)).await.unwrap();
    assert!(long.try_acquire().await.unwrap().is_none());
    held.release_some(300).await.unwrap();
    assert_eq!((held.permits(), long.available().await.unwrap()), (700, 300));
    held.release().await.unwrap();
    assert_eq!(long.available().await.unwrap(), 1_000);
}

/// Nobody knows their names when the call is dropped. One after the other, they would be there for half a minute.
#[tokio::test]
async fn a_thousand_permits_whose_answer_has_not_come_are_released_together() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let many = client(&over([&link]), LASTING).await.semaphore("many", 1_000);
    many.acquire().await.unwrap().release().await.unwrap();
    let delay = Toxic::Delay { by: ms(10), jitter: ms(0) };
    let far = [Direction::ToServer, Direction::ToClient].map(|way| link.inject(LinkFault::new(delay.clone(), way)));
    let late = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient).on_request(1, "-lease-"));
    let acquiring = tokio::spawn(async move { many.acquire_many(1_000).await });
    late.applied(PROMPTLY).await.unwrap();
    acquiring.abort();
    assert!(acquiring.await.unwrap_err().is_cancelled());
    late.heal().unwrap();
    eventually("all of them are released", PROMPTLY, async || {
        children(&truth, "/lock/semaphore/many/leases").await.is_empty()
    })
    .await;
    drop(far);
}

#[tokio::test]
async fn a_try_behind_the_place_of_a_client_that_stands_still_is_refused_soon() {
    let Some(server) = server().await else { return };
    let (a, foreign) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let api = a.semaphore(LockName::from_key("/api").unwrap(), 3);
    api.acquire().await.unwrap().release().await.unwrap();
    let place = stands_in_line(&foreign).await;
    for _ in 0..3 {
        assert!(api.try_acquire().await.unwrap().is_none(), "granted before somebody who came earlier");
    }
    assert_eq!(children(&foreign, "/api/locks").await.len(), 1, "a refused try is still in the queue");
    foreign.delete(&place).await.unwrap();
    api.try_acquire().await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn one_that_takes_its_permits_while_a_try_counts_is_not_counted_twice() {
    let Some(server) = server().await else { return };
    let (one, other) = (link(&server), link(&server));
    let semaphore = async |link| client(&over([link]), LASTING).await.semaphore("moves", 3);
    let (first, second) = (semaphore(&one).await, semaphore(&other).await);
    // No directory is to be made any more.
    first.acquire().await.unwrap().release().await.unwrap();
    let taking = one.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, "-lease-"));
    let moving = tokio::spawn(async move { first.try_acquire_many(2).await });
    taking.applied(PROMPTLY).await.unwrap();
    // It has found all permits free and the first one in the queue, and asks once more for the permits that are taken.
    let counting = other.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(2, "moves/leases"));
    let counts = tokio::spawn(async move { second.try_acquire().await });
    counting.applied(PROMPTLY).await.unwrap();
    taking.heal().unwrap();
    let two = soon("the first one has two", PROMPTLY, moving).await.unwrap().unwrap().unwrap();
    counting.heal().unwrap();
    let third = soon("the try ends", PROMPTLY, counts).await.unwrap().unwrap().expect("two of three are taken");
    third.release().await.unwrap();
    two.release().await.unwrap();
}

#[tokio::test]
async fn permits_that_are_released_while_a_dropped_call_does_so_too_stay_held() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let a = client(&over([&link]), LASTING).await;
    // One node for all of them, and another one in its place for fewer.
    let semaphore = a.semaphore("twice", 5_000).with_lease(watched());
    for _ in 0..5 {
        let mut held = semaphore.acquire_many(4_000).await.unwrap();
        let asked = || LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, "twice/leases");
        let held_up = link.inject(asked());
        tokio::select! {
            outcome = held.release_some(1) => panic!("answered: {outcome:?}"),
            applied = held_up.applied(PROMPTLY) => drop(applied.unwrap()),
        }
        // The dropped call goes on in the background, beside the next one: both look which nodes there are.
        let before = link.requests();
        let healed = async {
            eventually("both have asked", PROMPTLY, async || link.requests() >= before + 4).await;
            held_up.heal().unwrap();
        };
        let (outcome, ()) = futures_util::join!(held.release_some(500), healed);
        outcome.unwrap();
        renewed(&held, 2).await;
        assert_eq!(held.permits(), 3_499);
        assert_eq!(semaphore.available().await.unwrap(), 5_000 - 3_499);
        held.release().await.unwrap();
        assert!(children(&truth, "/lock/semaphore/twice/leases").await.is_empty());
    }
}

/// Without transactions some nodes may be deleted while the deletion of another one is refused.
#[tokio::test]
async fn a_release_of_some_that_is_refused_has_released_none() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let permits = client(&over([&link]), LASTING).await.semaphore("some", 9).with_ttl(LASTING);
    let directory = "/lock/semaphore/some/leases";
    for nth in 1..=10 {
        let mut held = permits.acquire_many(4).await.unwrap();
        let refusal = LinkFault::new(Toxic::Answer { text: "-102".to_owned() }, Direction::ToServer);
        let refusal = link.inject(refusal.on_request(nth, directory));
        let outcome = held.release_some(3).await;
        // The client crates differ in how many requests there are.
        drop(refusal.heal());
        let left = async || children(&truth, directory).await.len();
        match outcome {
            Err(error) if error.is_definite() => {
                assert_eq!((left().await, held.permits()), (4, 4), "request {nth} is refused: {error}");
            }
            _ => eventually("three are released", PROMPTLY, async || left().await == 1).await,
        }
        held.release().await.unwrap();
        assert_eq!(left().await, 0, "left by request {nth}");
    }
}
