//! A master behind sentinels.

use lock_testkit::testing::about_time;
use lock_testkit_servers::redis::{RedisOptions, SentinelDeployment};

use crate::support::{Traces, installed};

#[test]
fn a_killed_master_is_replaced_and_comes_back_as_a_replica() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        assert_eq!(deployment.sentinels().len(), 3);
        assert!(deployment.url().ends_with("/mymaster"), "{}", deployment.url());
        let old = deployment.master().await.unwrap();
        let client = old.client().unwrap();
        client.command(&["SET", "a", "1"]).await.unwrap();
        assert_eq!(client.command(&["WAIT", "2", "5000"]).await.unwrap().as_int(), Some(2));
        old.kill().unwrap();
        let new = deployment.until_another_master(old).await.unwrap();
        assert_ne!(new.address(), old.address());
        let kept = new.client().unwrap().command(&["GET", "a"]).await.unwrap();
        assert_eq!(kept.as_text().as_deref(), Some("1"));
        old.restart().await.unwrap();
        // Ready is a deployment in which every other node follows the master. Which one that is a stalled machine may have
        // changed once more: a second of silence is a failure.
        deployment.until_ready().await.unwrap();
        let found = SentinelDeployment::existing(deployment.url()).await.unwrap();
        found.until_ready().await.unwrap();
        assert!(found.nodes().len() == 3 && found.nodes()[0].kill().is_err(), "they are not its own");
        let present = deployment.master().await.unwrap();
        assert_eq!(found.master().await.unwrap().address(), present.address());
        let follower = if old.address() == present.address() { new } else { old };
        assert_eq!(follower.info("replication", "role").await.unwrap(), "slave");
        present.kill().unwrap();
        let next = deployment.until_another_master(present).await.unwrap();
        assert!(next.is_running() && next.address() != present.address());
    });
}

#[test]
fn a_planned_failover_needs_only_a_quorum_of_sentinels() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let (old, frozen) = (deployment.master_address().await.unwrap(), &deployment.sentinels()[0]);
        frozen.stop().unwrap();
        let new = deployment.fail_over().await.unwrap().address();
        assert_ne!(new, old);
        frozen.cont().unwrap();
        deployment.until_ready().await.unwrap();
        assert_eq!(deployment.master_address().await.unwrap(), new);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_deployment_with_a_user() {
    let options = RedisOptions::new().with_user("worker", "secret");
    let Some(deployment) = installed(SentinelDeployment::start_with(&options).await) else { return };
    let found = SentinelDeployment::existing(deployment.url()).await.unwrap();
    assert_eq!(found.master().await.unwrap().info("replication", "role").await.unwrap(), "master");
    assert!(deployment.url().starts_with("redis-sentinel://worker:secret@127.0.0.1:"), "{}", deployment.url());
    let servers: Vec<_> = deployment.nodes().iter().chain(deployment.sentinels()).collect();
    let traces: Vec<_> = servers.iter().map(|server| Traces::of(server)).collect();
    servers[0].stop().unwrap();
    assert_eq!(traces.len(), 6);
    drop(deployment);
    assert!(traces.iter().all(Traces::are_gone), "{traces:?}");
}
