//! Servers that know nothing of each other.

use lock_testkit_servers::redis::{ClusterDeployment, IndependentServers, SentinelDeployment};

use crate::support::{Traces, installed};

#[tokio::test]
async fn each_server_is_for_itself() {
    let Some(started) = installed(IndependentServers::start_own(5).await) else { return };
    let traces: Vec<_> = started.servers().iter().map(Traces::of).collect();
    assert_eq!((started.urls().len(), started.urls()[4].as_str()), (5, started.servers()[4].url()));
    started.servers()[0].client().unwrap().command(&["SET", "a", "1"]).await.unwrap();
    for server in &started.servers()[1..] {
        let client = server.client().unwrap();
        assert_eq!(client.command(&["DBSIZE"]).await.unwrap().as_int(), Some(0));
        assert_eq!(server.info("replication", "role").await.unwrap(), "master");
    }
    let found = IndependentServers::existing(started.urls()).await.unwrap();
    assert!(found.urls() == started.urls() && found.servers()[0].kill().is_err(), "they are not its own");
    started.servers()[3].kill().unwrap();
    assert!(started.servers()[0].is_running() && !started.servers()[3].is_running());
    drop(started);
    assert!(traces.iter().all(Traces::are_gone), "{traces:?}");
}

#[test]
fn a_harness_may_start_every_deployment() {
    // `Harness::start` is asynchronous, and its future has to be sent between threads.
    fn may_be_sent<F: Future + Send>(_: F) {}
    may_be_sent(IndependentServers::start(3));
    may_be_sent(SentinelDeployment::start());
    may_be_sent(ClusterDeployment::start());
}
