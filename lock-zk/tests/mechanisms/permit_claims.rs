//! Permits that are taken without a place in the queue, while nobody is there.

use std::collections::BTreeSet;

use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit_servers::zookeeper::{ZooKeeperClient, ZooKeeperOptions, ZooKeeperServer};
use lock_zk::{Access, ErrorKind, ZkConfig};

use crate::support::{LASTING, PROMPTLY, client, connected, eventually, fails, link, ms, over, server, soon, there};

async fn listed(truth: &ZooKeeperClient, directory: &str) -> BTreeSet<String> {
    truth.children(&format!("/lock/semaphore/{directory}")).await.unwrap().unwrap_or_default().into_iter().collect()
}

#[tokio::test]
async fn a_free_permit_takes_two_requests_and_its_release_one() {
    const TURNS: i64 = 200;
    let Some(server) = server().await else { return };
    let permits = client(server.url(), LASTING).await.semaphore("cheap", 2);
    permits.acquire().await.unwrap().release().await.unwrap();
    let received = async || server.figure("zk_packets_received").await.unwrap();
    let before = received().await;
    for _ in 0..TURNS {
        permits.acquire().await.unwrap().release().await.unwrap();
    }
    // And a few pings and heartbeats.
    let requests = received().await - before;
    assert!((TURNS * 3..TURNS * 3 + TURNS / 4).contains(&requests), "{requests} requests for {TURNS} turns");
}

#[tokio::test]
async fn the_token_is_the_transaction_that_made_the_permit_and_grows_into_the_queue_and_back() {
    let Some(server) = server().await else { return };
    let truth = server.client().await.unwrap();
    let mut last = 0;
    for _ in 0..3 {
        // A client that was refused a moment ago goes into the queue at once.
        let permits = client(server.url(), LASTING).await.semaphore("token", 1);
        let token = async || {
            let holders = permits.inspect().await.unwrap().holders;
            i64::try_from(holders[0].token.unwrap()).unwrap()
        };
        let held = permits.acquire().await.unwrap();
        let node = listed(&truth, "token/leases").await.pop_first().unwrap();
        let made = truth.exists(&format!("/lock/semaphore/token/leases/{node}")).await.unwrap().unwrap().czxid;
        assert_eq!(token().await, made);
        assert!(made > last, "{made:#x} after {last:#x}");
        last = made;
        let waiting = tokio::spawn({
            let permits = permits.clone();
            async move { permits.acquire().await }
        });
        eventually("it waits", PROMPTLY, async || listed(&truth, "token/locks").await.len() == 1).await;
        held.release().await.unwrap();
        let next = soon("it is granted", PROMPTLY, waiting).await.unwrap().unwrap();
        let next_token = token().await;
        assert!(next_token > last, "{next_token:#x} after {last:#x}");
        last = next_token;
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn nobody_takes_a_free_permit_before_whoever_waits_for_more() {
    let Some(server) = server().await else { return };
    let truth = server.client().await.unwrap();
    let (a, b, c) = (
        client(server.url(), LASTING).await.semaphore("fair", 2),
        client(server.url(), LASTING).await.semaphore("fair", 2),
        client(server.url(), LASTING).await.semaphore("fair", 2),
    );
    let held = a.acquire().await.unwrap();
    let both = tokio::spawn(async move { b.acquire_many(2).await });
    let queued = async |number| {
        eventually("so many wait", PROMPTLY, async || listed(&truth, "fair/locks").await.len() == number).await;
    };
    queued(1).await;
    let one = tokio::spawn(async move { c.acquire().await });
    queued(2).await;
    assert_eq!(listed(&truth, "fair/leases").await.len(), 1, "one permit is free, and is kept for the first");
    held.release().await.unwrap();
    let both = soon("the first has both", PROMPTLY, both).await.unwrap().unwrap();
    assert!(!one.is_finished());
    both.release().await.unwrap();
    soon("then the second", PROMPTLY, one).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn permits_that_were_too_many_are_gone_when_their_client_waits_and_when_it_has_given_up() {
    let Some(server) = server().await else { return };
    let truth = server.client().await.unwrap();
    let (a, b) = (client(server.url(), LASTING).await, client(server.url(), LASTING).await);
    for patience in [0, 1, 2, 3, 5, 8, 100] {
        let name = format!("full-{patience}");
        let held = a.semaphore(&name, 1).acquire().await.unwrap();
        let permits = listed(&truth, &format!("{name}/leases")).await;
        let given_up = b.semaphore(&name, 1).try_acquire_for(ms(patience)).await.unwrap();
        assert!(given_up.is_none(), "two of one");
        eventually("nothing is left", PROMPTLY, async || {
            listed(&truth, &format!("{name}/leases")).await == permits
                && listed(&truth, &format!("{name}/locks")).await.is_empty()
        })
        .await;
        held.release().await.unwrap();
    }
}

#[tokio::test]
async fn another_limit_is_refused_and_leaves_nothing() {
    let Some(server) = server().await else { return };
    let truth = server.client().await.unwrap();
    let (a, b) = (client(server.url(), LASTING).await, client(server.url(), LASTING).await);
    let held = a.semaphore("limits", 3).acquire().await.unwrap();
    let error = fails(b.semaphore("limits", 4).acquire().await, ErrorKind::LimitMismatch);
    assert!(error.to_string().contains("limit of 3"), "{error}");
    assert_eq!(listed(&truth, "limits/leases").await.len(), 1);
    assert!(listed(&truth, "limits/locks").await.is_empty());
    held.release().await.unwrap();
}

/// The one node of many permits is replaced by one for fewer, with a number behind those of the claim.
#[tokio::test]
async fn a_claim_counts_permits_some_of_which_are_released_meanwhile() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let holder = client(server.url(), LASTING).await.semaphore("moves", 3_000);
    let claims = client(&over([&link]), LASTING).await.semaphore("moves", 3_000);
    holder.acquire().await.unwrap().release().await.unwrap();
    let mut held = holder.acquire_many(2_500).await.unwrap();
    assert_eq!(listed(&truth, "moves/leases").await.len(), 1);
    // The claim is carried out, and then it looks.
    let looks = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(2, "moves/leases"));
    let waiting = tokio::spawn(async move { claims.acquire_many(800).await });
    looks.applied(PROMPTLY).await.unwrap();
    eventually("it claims", PROMPTLY, async || listed(&truth, "moves/leases").await.len() == 801).await;
    held.release_some(200).await.unwrap();
    looks.heal().unwrap();
    eventually("it waits in the queue", PROMPTLY, async || listed(&truth, "moves/locks").await.len() == 1).await;
    assert_eq!((held.permits(), holder.available().await.unwrap()), (2_300, 700));
    held.release().await.unwrap();
    soon("it is granted", PROMPTLY, waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// Each request of a wait for a permit loses its answer once, and the connection with it.
#[tokio::test]
async fn a_permit_whose_answer_is_lost_is_found_and_is_one() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let permits = client(&over([&link]), LASTING).await.semaphore("lost", 1);
    permits.acquire().await.unwrap().release().await.unwrap();
    for nth in 1..=2 {
        let lost = LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(nth, "/lock/semaphore/lost");
        let fault = link.inject(lost);
        let held = soon("granted", PROMPTLY * 2, permits.acquire()).await.unwrap();
        fault.heal().unwrap();
        assert_eq!(listed(&truth, "lost/leases").await.len(), 1, "request {nth}");
        assert!(listed(&truth, "lost/locks").await.is_empty(), "request {nth}");
        held.release().await.unwrap();
        assert!(listed(&truth, "lost/leases").await.is_empty(), "request {nth}");
    }
}

#[tokio::test]
async fn what_is_left_of_a_lost_grant_is_deleted_also_when_the_connection_is_lost_with_the_deletion() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let locks = client(&over([&link]), LASTING).await;
    let kept = locks.mutex("kept").lock().await.unwrap();
    let held = locks.semaphore("cut", 2).with_ttl(ms(60_000)).acquire_many(2).await.unwrap();
    let nodes: Vec<_> = listed(&truth, "cut/leases").await.into_iter().collect();
    assert!(truth.delete(&format!("/lock/semaphore/cut/leases/{}", nodes[0])).await.unwrap());
    // The first request that names the other one looks for it, and the next one deletes it.
    let cut = link.inject(LinkFault::new(Toxic::Reset, Direction::ToServer).on_request(2, &nodes[1]));
    fails(soon("the look", PROMPTLY, held.extend(ms(60_000))).await, ErrorKind::Lost);
    cut.applied(PROMPTLY).await.unwrap();
    eventually("nothing is left", PROMPTLY, async || listed(&truth, "cut/leases").await.is_empty()).await;
    // In the session in which it was held.
    assert!(kept.is_held());
    kept.release().await.unwrap();
}

#[tokio::test]
async fn whoever_may_not_make_the_directory_anew_has_a_place_in_the_queue() {
    let Some(server) = server().await else { return };
    let truth = server.client().await.unwrap();
    let config = ZkConfig::new(server.url()).with_session_timeout(LASTING).with_tick_time(ms(200)).with_prefix("own");
    let secret = config.clone().with_access(Access::Creator).with_digest("me", "secret");
    let permits = connected(secret).await.semaphore("queue", 1);
    permits.acquire().await.unwrap().release().await.unwrap();
    let made = async || truth.exists("/own/semaphore/queue/locks").await.unwrap().unwrap().czxid;
    let before = made().await;
    permits.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(made().await, before, "made anew, with other rights");
    let open = connected(config).await.semaphore("queue", 1);
    fails(open.acquire().await, ErrorKind::Denied);
}

#[tokio::test]
async fn no_directory_stays_behind() {
    let options = ZooKeeperOptions::new().with_property("znode.container.checkIntervalMs", "300");
    let Some(server) = there(ZooKeeperServer::start_with(&options).await) else { return };
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    locks.semaphore("gone", 2).acquire().await.unwrap().release().await.unwrap();
    eventually("the directories are removed", PROMPTLY, async || {
        truth.children("/lock/semaphore/gone").await.unwrap().is_none()
    })
    .await;
    locks.semaphore("gone", 2).acquire().await.unwrap().release().await.unwrap();
}
