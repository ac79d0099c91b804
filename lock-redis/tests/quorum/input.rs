//! Configurations that make no quorum, and what a quorum does not offer.

use lock_redis::{ErrorKind, Guarantee, Phase, QuorumConfig, QuorumLocks, Support};

use crate::servers::{Servers, ms};

async fn refused(config: QuorumConfig, what: &str) {
    let error = QuorumLocks::connect_with(config).await.unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::InvalidArgument, Phase::Configure), "{error}");
    assert!(error.to_string().contains(what), "{error}");
}

#[tokio::test]
async fn servers_that_make_no_quorum_are_refused() {
    refused(QuorumConfig::new(Vec::<String>::new()), "at least 3").await;
    refused(QuorumConfig::new(["redis://127.0.0.1:1/", "redis://127.0.0.1:2/"]), "at least 3").await;
    // Two databases of one server are no two servers.
    let twice = ["redis://127.0.0.1:1/", "redis://127.0.0.1:2/", "redis://:secret@127.0.0.1:1/7"];
    refused(QuorumConfig::new(twice), "127.0.0.1:1 is named twice").await;
    let three = QuorumConfig::new(["redis://127.0.0.1:1/", "redis://127.0.0.1:2/", "redis://127.0.0.1:3/"]);
    refused(three.clone().with_prefix("{}"), "no braces").await;
    refused(three.with_longest_ttl(ms(5000)), "longest_ttl").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_has_no_fencing_tokens_and_says_so() {
    let Some(servers) = Servers::start().await else { return };
    let locks = servers.client().await;
    assert_eq!(locks.guarantees().of(Guarantee::Fencing), Support::No);
    assert_eq!(locks.mutex("input").fenced().unwrap_err().kind(), ErrorKind::Unsupported);
    let held = locks.mutex("input").lock().await.unwrap();
    assert_eq!(held.fencing_token(), None);
    assert_eq!(locks.mutex("input").inspect().await.unwrap().holders[0].token, None);
    held.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn four_servers_need_three() {
    let Some(servers) = Servers::start().await else { return };
    let mut config = servers.config();
    config.urls.pop();
    let locks = QuorumLocks::connect_with(config).await.unwrap();
    servers.kill(&[0]);
    locks.mutex("input").lock().await.unwrap().release().await.unwrap();
    servers.kill(&[1]);
    let error = locks.mutex("input").try_lock().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
    assert!(error.to_string().contains("2 of 4 servers gave no answer, 3 have to"), "{error}");
    servers.have_nothing_left(&[2, 3, 4]).await;
}
