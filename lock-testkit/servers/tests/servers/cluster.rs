//! A cluster.

use lock_testkit::testing::about_time;
use lock_testkit_servers::redis::{ClusterDeployment, RedisOptions, RedisServer};

use crate::support::{Traces, installed};

/// In the slot 12182, thus with the third master.
const KEY: &str = "{foo}1";

#[test]
fn a_killed_master_is_replaced_and_comes_back_as_a_replica() {
    about_time(async || {
        let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
        let slot = cluster.slot_of(KEY).await.unwrap();
        assert_eq!(slot, 12_182);
        let old = cluster.master_of(slot).await.unwrap();
        assert_eq!(old.address(), cluster.nodes()[2].address());
        assert_eq!(cluster.replica_of(slot).await.unwrap().address(), cluster.nodes()[5].address());
        let client = old.client().unwrap();
        client.command(&["SET", KEY, "1"]).await.unwrap();
        assert_eq!(client.command(&["WAIT", "1", "5000"]).await.unwrap().as_int(), Some(1));
        old.kill().unwrap();
        let new = cluster.until_another_master(slot, old).await.unwrap();
        assert_eq!(new.address(), cluster.nodes()[5].address());
        let kept = new.client().unwrap().command(&["GET", KEY]).await.unwrap();
        assert_eq!(kept.as_text().as_deref(), Some("1"));
        old.restart().await.unwrap();
        cluster.until_ready().await.unwrap();
        assert_eq!(cluster.replica_of(slot).await.unwrap().address(), old.address());
        let found = ClusterDeployment::existing(cluster.url()).await.unwrap();
        assert_eq!(found.master_of(slot).await.unwrap().address(), new.address());
        assert!(found.nodes().len() == 6 && found.nodes()[0].kill().is_err(), "they are not its own");
    });
}

#[test]
fn a_planned_failover_leaves_every_node_in_agreement() {
    about_time(async || {
        let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
        let slots = [0, 5_460, 5_461, 10_922, 10_923, 16_383];
        let mut masters = Vec::new();
        for slot in slots {
            masters.push(cluster.master_of(slot).await.unwrap().address());
        }
        let distinct: std::collections::BTreeSet<_> = masters.iter().collect();
        assert_eq!(distinct.len(), 3, "{masters:?}");
        let new = cluster.fail_over(0).await.unwrap();
        assert_eq!(new.address(), cluster.nodes()[3].address());
        assert_eq!(cluster.master_of(0).await.unwrap().address(), new.address());
        let error = cluster.nodes()[1].client().unwrap().command(&["GET", KEY]).await.unwrap_err().to_string();
        assert!(error.starts_with("MOVED 12182 127.0.0.1:"), "{error}");
        cluster.until_ready().await.unwrap();
    });
}

#[test]
fn a_slot_moves_with_its_keys_and_its_user() {
    about_time(async || {
        let options = RedisOptions::new().with_user("worker", "secret");
        let Some(cluster) = installed(ClusterDeployment::start_with(&options).await) else { return };
        assert!(cluster.url().starts_with("redis-cluster://worker:secret@127.0.0.1:"), "{}", cluster.url());
        let first = cluster.nodes()[0].address();
        let found = ClusterDeployment::existing(format!("redis-cluster://worker:secret@{first}/")).await.unwrap();
        let is_named = |node: &RedisServer| found.url().contains(node.address());
        assert!(cluster.nodes().iter().all(is_named), "{} names all nodes", found.url());
        assert!(found.url().starts_with("redis-cluster://worker:secret@"), "{}", found.url());

        let slot = cluster.slot_of(KEY).await.unwrap();
        let (from, to) = (cluster.master_of(slot).await.unwrap(), &cluster.nodes()[0]);
        let (old, new) = (from.client().unwrap(), to.client().unwrap());
        old.command(&["MSET", KEY, "1", "{foo}2", "2"]).await.unwrap();
        old.command(&["PEXPIRE", KEY, "600000"]).await.unwrap();

        let migration = cluster.migrate(slot, to).await.unwrap();
        migration.move_keys(&[KEY]).await.unwrap();
        let said = async |command: &[&str]| old.command(command).await.unwrap_err().to_string();
        assert_eq!(said(&["GET", KEY]).await, format!("ASK {slot} {}", to.address()));
        assert_eq!(old.command(&["GET", "{foo}2"]).await.unwrap().to_string(), "2");
        new.command(&["ASKING"]).await.unwrap();
        assert_eq!(new.command(&["GET", KEY]).await.unwrap().to_string(), "1");
        new.command(&["ASKING"]).await.unwrap();
        let undecided = new.command(&["MGET", KEY, "{foo}2"]).await.unwrap_err().to_string();
        assert!(undecided.starts_with("TRYAGAIN"), "{undecided}");

        migration.finish().await.unwrap();
        assert_eq!(cluster.master_of(slot).await.unwrap().address(), to.address());
        assert_eq!(said(&["GET", KEY]).await, format!("MOVED {slot} {}", to.address()));
        assert_eq!(new.command(&["GET", "{foo}2"]).await.unwrap().to_string(), "2");
        let left = new.command(&["PTTL", KEY]).await.unwrap().as_int().unwrap();
        assert!((1..=600_000).contains(&left), "{left}");
        cluster.until_ready().await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_cluster() {
    let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
    let traces: Vec<_> = cluster.nodes().iter().map(Traces::of).collect();
    assert_eq!(traces.len(), 6);
    cluster.nodes()[4].stop().unwrap();
    drop(cluster);
    assert!(traces.iter().all(Traces::are_gone), "{traces:?}");
}
