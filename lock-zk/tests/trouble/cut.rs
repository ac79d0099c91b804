//! A follower that is cut off from its leader while the holder is connected to it: it answers pings and reads, and the
//! leader ends the session meanwhile.

use std::time::Duration;

use lock_testkit::servers::zookeeper::{ZooKeeperEnsemble, ZooKeeperOptions};

use crate::support::{PROMPTLY, SESSION, client, eventually, lease, ms, soon, there};

#[tokio::test]
async fn a_holder_at_a_follower_that_is_cut_off_stops_believing_before_another_is_granted() {
    let options = ZooKeeperOptions::new().with_severable_links();
    let Some(ensemble) = there(ZooKeeperEnsemble::start_with(&options).await) else { return };
    let follower = ensemble.followers().await.remove(0);
    let leader = ensemble.leader().await.unwrap();
    let (a, b) = (client(follower.url(), SESSION).await, client(leader.url(), SESSION).await);
    let held = a.mutex("cut").with_lease(lease()).lock().await.unwrap();
    let other = b.mutex("cut");
    let waiting = tokio::spawn(async move { other.try_lock_for(Duration::from_secs(20)).await });
    eventually("two in line", PROMPTLY, async || b.mutex("cut").inspect().await.unwrap().waiters.len() == 1).await;
    ensemble.cut_off(follower).unwrap();
    loop {
        // Looked at in this order: a grant after the first look is no overlap.
        let believed = held.is_held();
        assert!(!(believed && waiting.is_finished()), "two believe in one lock");
        if !believed {
            break;
        }
        tokio::time::sleep(ms(2)).await;
    }
    let next = soon("the other is granted", PROMPTLY, waiting).await.unwrap().unwrap().unwrap();
    next.release().await.unwrap();
    ensemble.heal().unwrap();
    let again = soon("the former holder can take it again", PROMPTLY * 2, a.mutex("cut").lock()).await.unwrap();
    again.release().await.unwrap();
}

#[tokio::test]
async fn the_death_of_the_leader_costs_no_lock_and_no_place() {
    let Some(ensemble) = there(ZooKeeperEnsemble::start_own().await) else { return };
    let session = Duration::from_secs(4);
    let (a, b) = (client(ensemble.url(), session).await, client(ensemble.url(), session).await);
    let held = a.mutex("leader").lock().await.unwrap();
    let other = b.mutex("leader");
    let waiting = tokio::spawn(async move { other.lock().await });
    eventually("one waits", PROMPTLY, async || b.mutex("leader").inspect().await.unwrap().waiters.len() == 1).await;
    let leader = ensemble.leader().await.unwrap();
    leader.kill().unwrap();
    ensemble.until_another_leader(leader).await.unwrap();
    let seen = async || b.mutex("leader").inspect().await.ok();
    eventually("the line is as it was", PROMPTLY, async || {
        seen().await.is_some_and(|seen| seen.holders[0].grant == Some(held.grant_id()) && seen.waiters.len() == 1)
    })
    .await;
    assert!(held.is_held(), "the holder lost its lock");
    soon("the release", PROMPTLY, held.release()).await.unwrap();
    let next = soon("the waiter is granted", PROMPTLY, waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}
