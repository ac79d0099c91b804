//! A follower that is cut off from its leader while the holder is connected to it: it answers pings and reads, and the
//! leader ends the session meanwhile.

use std::time::Duration;

use lock_testkit_servers::zookeeper::{ZooKeeperEnsemble, ZooKeeperOptions};

use crate::support::{LASTING, PROMPTLY, SESSION, client, eventually, lease, parts, soon, there};

#[tokio::test]
async fn a_holder_at_a_follower_that_is_cut_off_stops_believing_before_another_is_granted() {
    let options = ZooKeeperOptions::new().with_severable_links();
    let Some(ensemble) = there(ZooKeeperEnsemble::start_with(&options).await) else { return };
    let (leader, [follower, _]) = parts(&ensemble).await;
    let (a, b) = (client(follower.url(), SESSION).await, client(leader.url(), LASTING).await);
    let held = a.mutex("cut").with_lease(lease()).lock().await.unwrap();
    let other = b.mutex("cut");
    let waiting = tokio::spawn(async move { other.try_lock_for(Duration::from_secs(20)).await });
    eventually("two in the queue", PROMPTLY, async || b.mutex("cut").inspect().await.unwrap().waiters.len() == 1).await;
    ensemble.cut_off(follower).unwrap();
    eventually("the holder stops believing", PROMPTLY, async || {
        // Looked at in this order: a grant after the first look is no overlap.
        let believed = held.is_held();
        assert!(!(believed && waiting.is_finished()), "two believe in one lock");
        !believed
    })
    .await;
    let next = soon("the other is granted", PROMPTLY, waiting).await.unwrap().unwrap().unwrap();
    next.release().await.unwrap();
    ensemble.heal().unwrap();
    let again = soon("the former holder can take it again", PROMPTLY * 2, a.mutex("cut").lock()).await.unwrap();
    again.release().await.unwrap();
}
