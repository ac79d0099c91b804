//! One owner in several clients, and under several labels.

use std::time::Instant;

use lock_redis::{LeaseOptions, Owner};

use crate::server::{HAND_OVER, SLACK, Server, eventually, long, ms, soon};

#[tokio::test(flavor = "multi_thread")]
async fn the_part_of_a_client_that_died_expires_and_its_owner_holds_on_elsewhere() {
    let Some(server) = Server::start().await else { return };
    let (a, b, c) = (server.client().await, server.client().await, server.client().await);
    let (us, them) = (Owner::new(), Owner::new());
    let ttl = ms(3000);
    let dies = LeaseOptions::new(ttl).with_auto_renew(false);
    let began = Instant::now();
    let outer = a.reentrant("owners").with_lease(dies).lock(&us).await.unwrap();
    let lock = c.reentrant("owners").with_lease(long());
    let other = tokio::spawn(async move { lock.lock(&them).await.unwrap() });
    server.until_in_line("lock:reentrant:{owners}", 1).await;
    // Past the other owner, who waits.
    let inner = b.reentrant("owners").with_lease(long()).lock(&us).await.unwrap();
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    std::mem::forget(outer);
    eventually("the dead part has expired", ttl + SLACK, async || {
        (b.reentrant("owners").inspect().await.unwrap().holders.len() == 1).then_some(())
    })
    .await;
    // By the server's clock, which counts whole milliseconds.
    assert!(began.elapsed() >= ttl * 99 / 100, "it went before its time");
    // Well past what the dead one had left.
    tokio::time::sleep(ms(1000)).await;
    assert!(inner.is_held() && !other.is_finished(), "the other owner came in");
    let token = inner.fencing_token();
    inner.release().await.unwrap();
    let other = soon("the other owner is let in", HAND_OVER + SLACK, other).await.unwrap();
    assert!(other.fencing_token() > token);
    other.release().await.unwrap();
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_with_another_label_is_shown_with_that() {
    let Some(server) = Server::start().await else { return };
    let (locks, us) = (server.client().await, Owner::new());
    let lock = locks.reentrant("labels").with_lease(long());
    for label in ["step 1", "step 2"] {
        let held = lock.lock(&us.clone().with_label(label)).await.unwrap();
        let seen = lock.inspect().await.unwrap();
        assert_eq!(seen.holders[0].owner.as_ref().and_then(Owner::label), Some(label));
        held.release().await.unwrap();
    }
    server.has_nothing_left().await;
}
