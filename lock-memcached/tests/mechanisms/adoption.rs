//! Adoptions: the one command by which a detached mutex becomes another client's, and messages that come twice or too late.

use std::time::Duration;

use lock_core::ErrorKind;
use lock_memcached::{LeaseOptions, MemcachedLocks, RestartPolicy};
use lock_testkit::ms;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{client, config, eventually, far, open, opened, server};

const KEY: &str = "lock:mutex:held";
/// Text in the command that changes the item, and in no other.
const CHANGE: &str = "ma lock:mutex:held ";
/// So long that nothing ends by itself.
const TTL: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(15);

/// The value of the lock's item.
async fn number(server: &MemcachedServer) -> Option<String> {
    let value = server.client().get(KEY).await.unwrap();
    value.map(|value| String::from_utf8_lossy(&value).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adoption_whose_reply_is_lost_finds_its_own_number() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, theirs) = far(&server, RestartPolicy::Off).await;
    let mine = client(&server, RestartPolicy::Off).await;
    let detached = mine.mutex("held").with_ttl(TTL).lock().await.unwrap().detach().await.unwrap();
    let before = number(&server).await;
    let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, CHANGE));
    let adopted = theirs.adopt(&detached).await.unwrap();
    lost.applied(PATIENCE).await.unwrap();
    lost.heal().unwrap();
    assert_ne!(number(&server).await, before, "it has the number under which it was detached");
    assert!(mine.mutex("held").try_lock().await.unwrap().is_none());
    adopted.release().await.unwrap();
    assert_eq!(number(&server).await, None);
}

/// The caller is told that it is not known, and the lock is released long before its lease ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adoption_that_gets_no_answer_in_time_is_undone() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let mine = client(&server, RestartPolicy::Off).await;
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let mut config = config(&server).with_restart_policy(RestartPolicy::Off).with_longest_lease(TTL);
    config.url = format!("memcached://{}", link.address());
    config.client.lease = LeaseOptions::new(TTL);
    let theirs = MemcachedLocks::connect_with(config).await.unwrap();
    let detached = mine.mutex("held").with_ttl(TTL).lock().await.unwrap().detach().await.unwrap();
    let before = number(&server).await;
    let silence = link.inject(LinkFault::new(Toxic::Blackhole, Direction::ToClient).on_request(1, CHANGE));
    let error = theirs.adopt(&detached).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert_ne!(number(&server).await, before, "it was not carried out");
    silence.heal().unwrap();
    eventually("it is released", async || number(&server).await.is_none()).await;
}

/// Both have seen the item as it was detached before one of them changes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_who_have_seen_the_same_item_one_adopts_it() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let mine = client(&server, RestartPolicy::Off).await;
    let ((link, late), first) = (far(&server, RestartPolicy::Off).await, client(&server, RestartPolicy::Off).await);
    let detached = mine.mutex("held").with_ttl(TTL).lock().await.unwrap().detach().await.unwrap();
    let held = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, CHANGE));
    let message = detached.clone();
    let second = tokio::spawn(async move { late.adopt(&message).await });
    held.applied(PATIENCE).await.unwrap();
    let adopted = first.adopt(&detached).await.unwrap();
    let own = number(&server).await;
    held.heal().unwrap();
    let refused = second.await.unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotHeld, "{refused}");
    assert_eq!(number(&server).await, own, "the second one has changed what the first one holds");
    adopted.release().await.unwrap();
}

/// A copy of the former holder's claim makes the item anew when the server has forgotten it: under another epoch it is not the lock
/// of which the message tells, and others may have held that in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_a_former_epoch_adopts_nothing() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (mine, theirs) = (open(&server).await, open(&server).await);
    let detached = mine.mutex("held").lock().await.unwrap().detach().await.unwrap();
    let before = number(&server).await.unwrap();
    server.client().command("flush_all").await.unwrap();
    let later = opened(config(&server)).await;
    later.mutex("held").try_lock_for(PATIENCE).await.unwrap().unwrap().release().await.unwrap();
    assert!(server.client().add(KEY, &before, 60).await.unwrap());
    for locks in [&theirs, &later] {
        let refused = locks.adopt(&detached).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotHeld, "{refused}");
        assert_eq!(number(&server).await.as_deref(), Some(&*before));
    }
}

/// A client that has no tokens passes its lock on to one that has them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_token_gets_one_where_there_are_tokens() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (mine, theirs) = (client(&server, RestartPolicy::Off).await, open(&server).await);
    let before = theirs.mutex("held").lock().await.unwrap();
    let token = before.fencing_token().unwrap();
    before.release().await.unwrap();
    let detached = mine.mutex("held").lock().await.unwrap().detach().await.unwrap();
    assert_eq!(detached.token, None);
    let adopted = theirs.adopt(&detached).await.unwrap();
    let its = adopted.fencing_token().unwrap();
    adopted.release().await.unwrap();
    let after = theirs.mutex("held").try_lock_for(ms(15_000)).await.unwrap().unwrap();
    assert!(token < its && its < after.fencing_token().unwrap(), "{token}, {its}, {after:?}");
    after.release().await.unwrap();
}
