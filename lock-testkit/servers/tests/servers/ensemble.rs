//! Three ZooKeeper servers.

use std::time::Duration;

use lock_testkit::HarnessError;
use lock_testkit::testing::{about_time, eventually};
use lock_testkit_servers::zookeeper::{Mode, NodeKind, Session, ZooKeeperClient, ZooKeeperEnsemble, ZooKeeperOptions};
use lock_testkit_servers::{Certificates, ClientCertificates};

use crate::support::{Traces, installed};

/// The time by which an ensemble of Java processes has changed its mind, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_killed_leader_is_replaced_and_comes_back_as_a_follower() {
    about_time(async || {
        let Some(ensemble) = installed(ZooKeeperEnsemble::start_own().await) else { return };
        assert_eq!((ensemble.servers().len(), ensemble.followers().await.len()), (3, 2));
        let client = ensemble.client().await.unwrap();
        client.create("/a", b"1", NodeKind::Persistent).await.unwrap();
        client.create("/mine", b"", NodeKind::Ephemeral).await.unwrap();
        let old = ensemble.leader().await.unwrap();
        old.kill().unwrap();
        let new = ensemble.until_another_leader(old).await.unwrap();
        assert_ne!(new.address(), old.address());
        // The client's own server may have been the leader, and every server closes its connections in an election.
        let _ = client.exists("/mine").await;
        assert!(client.exists("/mine").await.unwrap().is_some(), "the session moves");
        old.restart().await.unwrap();
        ensemble.until_ready().await.unwrap();
        assert_eq!(old.mode().await.unwrap(), Mode::Follower);
        let found = ZooKeeperEnsemble::existing(format!("{}/a", ensemble.url())).unwrap();
        found.until_ready().await.unwrap();
        assert_eq!(found.leader().await.unwrap().address(), new.address());
        assert!(
            found.servers()[0].kill().is_err() && found.cut_off(&found.servers()[0]).is_err(),
            "they are not its own"
        );
        assert_eq!(found.client().await.unwrap().data("/").await.unwrap().unwrap(), b"1");
        let at_old = old.client().await.unwrap();
        at_old.sync("/a").await.unwrap();
        assert_eq!(at_old.data("/a").await.unwrap().unwrap(), b"1");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_nobody_serves() {
    let Some(ensemble) = installed(ZooKeeperEnsemble::start_own().await) else { return };
    let leader = ensemble.leader().await.unwrap();
    // One that does not say in time that it follows is a follower all the same.
    for follower in ensemble.servers().iter().filter(|server| server.address() != leader.address()) {
        follower.kill().unwrap();
    }
    eventually("the end of the last server's part", PATIENCE, async || leader.mode().await.is_err()).await;
    assert!(ensemble.leader().await.is_err() && ensemble.client().await.is_err());
    for server in ensemble.servers().iter().filter(|server| !server.is_running()) {
        server.restart().await.unwrap();
    }
    ensemble.until_ready().await.unwrap();
    assert!(ensemble.client().await.unwrap().exists("/").await.unwrap().is_some());
}

#[test]
fn a_frozen_leader_is_replaced_and_follows_when_it_goes_on() {
    about_time(async || {
        let Some(ensemble) = installed(ZooKeeperEnsemble::start_own().await) else { return };
        let old = ensemble.leader().await.unwrap();
        old.stop().unwrap();
        let new = ensemble.until_another_leader(old).await.unwrap();
        old.cont().unwrap();
        eventually("its new part", PATIENCE, async || old.mode().await.is_ok_and(|mode| mode == Mode::Follower)).await;
        assert_eq!(ensemble.leader().await.unwrap().address(), new.address());
    });
}

#[test]
fn a_session_that_moves_to_another_server_is_lost_to_its_old_connection() {
    about_time(async || {
        let Some(ensemble) = installed(ZooKeeperEnsemble::start_own().await) else { return };
        let [one, other, _] = ensemble.servers() else { panic!("not three servers") };
        let victim = one.client().await.unwrap();
        victim.create("/mine", b"", NodeKind::Ephemeral).await.unwrap();
        let session = Session::of(victim.session().id());
        let thief = ZooKeeperClient::take_over(other.url(), &session).await.unwrap();
        assert!(thief.exists("/mine").await.unwrap().is_some());
        assert!(victim.set_data("/mine", b"2").await.is_err(), "its connection is closed");
        assert_eq!(thief.data("/mine").await.unwrap().unwrap(), b"", "and it has done nothing");
        assert!(victim.set_data("/mine", b"2").await.unwrap(), "another connection takes the session back");
        ensemble.expire(session.id()).await.unwrap();
        let truth = ensemble.client().await.unwrap();
        truth.sync("/").await.unwrap();
        assert!(truth.exists("/mine").await.unwrap().is_none());
    });
}

#[test]
fn a_follower_that_is_cut_off_tells_what_was_until_it_is_healed() {
    about_time(async || {
        // It must not notice by itself while it is looked at.
        let options = ZooKeeperOptions::new().with_severable_links().with_setting("syncLimit", "300");
        let Some(ensemble) = installed(ZooKeeperEnsemble::start_with(&options).await) else { return };
        let (leader, followers) = (ensemble.leader().await.unwrap(), ensemble.followers().await);
        let (cut, truth) = (followers[0], leader.client().await.unwrap());
        let timeout = Duration::from_millis(3000);
        let (holder, reader) =
            (ZooKeeperClient::connect_with(cut.url(), timeout).await.unwrap(), cut.client().await.unwrap());
        holder.create("/mine", b"", NodeKind::Ephemeral).await.unwrap();
        truth.sync("/").await.unwrap();
        assert!(truth.exists("/mine").await.unwrap().is_some());
        ensemble.cut_off(cut).unwrap();
        eventually("the end of its session at the leader", PATIENCE, async || {
            // Reads are as good as pings.
            assert!(holder.exists("/mine").await.unwrap().is_some(), "what is over still stands at the follower");
            truth.exists("/mine").await.unwrap().is_none()
        })
        .await;
        assert!(reader.exists("/mine").await.unwrap().is_some(), "what is over still stands at the follower");
        assert_eq!(cut.mode().await.unwrap(), Mode::Follower);
        truth.create("/theirs", b"", NodeKind::Persistent).await.unwrap();
        assert!(reader.exists("/theirs").await.unwrap().is_none());
        ensemble.heal().unwrap();
        eventually("the news", PATIENCE, async || reader.exists("/theirs").await.is_ok_and(|stat| stat.is_some()))
            .await;
        eventually("the end of the session", PATIENCE, async || refused(holder.exists("/mine").await)).await;
        ensemble.until_ready().await.unwrap();
    });
}

#[test]
fn a_follower_that_is_cut_off_for_long_serves_nobody_until_it_is_healed() {
    about_time(async || {
        let options = ZooKeeperOptions::new().with_severable_links();
        let Some(ensemble) = installed(ZooKeeperEnsemble::start_with(&options).await) else { return };
        let cut = ensemble.followers().await[0];
        let client = cut.client().await.unwrap();
        ensemble.cut_off(cut).unwrap();
        eventually("the end of its part", PATIENCE, async || cut.mode().await.is_err()).await;
        assert!(client.exists("/").await.is_err(), "its clients lost their connections");
        assert!(ensemble.leader().await.is_ok() && ensemble.client().await.is_ok());
        ensemble.heal().unwrap();
        ensemble.until_ready().await.unwrap();
        assert!(client.exists("/").await.unwrap().is_some());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_an_ensemble() {
    let certificates = Certificates::new().unwrap();
    let options = ZooKeeperOptions::new().with_severable_links().for_benchmarks();
    let options = options.with_tls(&certificates, ClientCertificates::NotAsked);
    let Some(ensemble) = installed(ZooKeeperEnsemble::start_with(&options).await) else { return };
    let doors = ensemble.servers().iter().map(|server| server.url().strip_prefix("zks://").unwrap());
    assert_eq!(ensemble.url(), format!("zks://{}", doors.collect::<Vec<_>>().join(",")));
    assert!(ensemble.client().await.unwrap().exists("/").await.unwrap().is_some());
    let traces: Vec<_> = ensemble.servers().iter().map(Traces::of_zookeeper).collect();
    ensemble.servers()[0].stop().unwrap();
    assert_eq!(traces.len(), 3);
    drop(ensemble);
    assert!(traces.iter().all(Traces::are_gone), "{traces:?}");
}

/// Whether a session is over. A connection that was closed is opened anew by the next request.
fn refused<T>(outcome: Result<T, HarnessError>) -> bool {
    outcome.is_err_and(|refusal| refusal.to_string().contains("SessionExpired"))
}
