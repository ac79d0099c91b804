//! Configurations that make no quorum, and what a quorum does not offer.

use std::collections::BTreeSet;
use std::time::Duration;

use lock_redis::{
    Error, ErrorKind, Guarantee, LeaseOptions, LockName, Locks, Phase, QuorumConfig, QuorumLocks, Support,
};

use crate::servers::{ALL, PROMPTLY, Servers, eventually, key, long, ms, renewed};

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
    let twice = ["unix:///run/a", "unix:///run/b?db=1", "unix:///run/a?db=2"];
    refused(QuorumConfig::new(twice), "/run/a is named twice").await;
    let watched = ["redis://127.0.0.1:1/", "redis://127.0.0.1:2/", "redis-sentinel://127.0.0.1:3/master"];
    refused(QuorumConfig::new(watched), "neither behind sentinels").await;
    refused(QuorumConfig::new(["redis://a", "redis://b", "http://:secret@c"]), "schemes are").await;
    let three = QuorumConfig::new(["redis://127.0.0.1:1/", "redis://127.0.0.1:2/", "redis://127.0.0.1:3/"]);
    refused(three.clone().with_prefix("{}"), "no braces").await;
    refused(three.clone().with_longest_ttl(ms(5000)), "longest_ttl").await;
    refused(three.with_longest_ttl(Duration::MAX), "longest_ttl").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_has_no_fencing_tokens_nor_records_and_says_so() {
    let Some(servers) = Servers::start().await else { return };
    let locks = servers.client().await;
    assert_eq!(locks.guarantees().of(Guarantee::Fencing), Support::No);
    assert_eq!(locks.mutex("input").fenced().unwrap_err().kind(), ErrorKind::Unsupported);
    // Without tokens nobody could tell a late holder from the present one.
    assert_eq!(locks.guarantees().of(Guarantee::Record), Support::No);
    let refused = Locks::from(&locks).recorded("input").unwrap_err();
    assert_eq!((refused.kind(), refused.phase()), (ErrorKind::Unsupported, Phase::Configure), "{refused}");
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
    // Where two may still have it, since the undo was not confirmed yet, that is the cause.
    let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    let what = "2 of 4 servers gave no answer, 3 must answer";
    assert!(error.to_string().contains(what) || cause.contains(what), "{error}: {cause}");
    servers.have_nothing_left(&[2, 3, 4]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_our_own_cannot_be_shared_and_is_refused_at_once() {
    let Some(servers) = Servers::start().await else { return };
    let (holder, locks) = (servers.client().await, servers.client().await);
    let held = servers.hold_everywhere(&holder.mutex("own").with_lease(long())).await;
    // A task of the same client waits for the lock that is kept there.
    let waits = {
        let mutex = locks.mutex("own");
        tokio::spawn(async move { mutex.lock().await?.release().await })
    };
    let waiters = format!("{}:w", key("own"));
    let waiting = async || (servers.run(0, &["ZCARD", &waiters]).await.as_int() == Some(1)).then_some(());
    eventually("it waits", PROMPTLY, waiting).await;
    let own = locks.mutex(LockName::from_key(key("own")).unwrap());
    let refused = |what: &str, error: Option<Error>| {
        let error = error.unwrap_or_else(|| panic!("{what} is not refused"));
        assert_eq!((error.kind(), error.phase()), (ErrorKind::InvalidArgument, Phase::Configure), "{what}: {error}");
    };
    refused("lock", tokio::time::timeout(PROMPTLY, own.lock()).await.expect("lock waits").err());
    refused("try_lock", own.try_lock().await.err());
    refused("inspect", own.inspect().await.err());
    refused("force_release", own.force_release(held.grant_id(), "the test asks").await.err());
    held.release().await.unwrap();
    waits.await.unwrap().unwrap();
    servers.have_nothing_left(ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_key_without_a_byte_in_it_is_somebody_elses() {
    let Some(servers) = Servers::start().await else { return };
    let locks = servers.client().await;
    for i in &ALL[..3] {
        assert!(servers.run(*i, &["SET", &key("input"), ""]).await.is_ok());
    }
    assert!(locks.mutex("input").try_lock().await.unwrap().is_none());
    assert!(locks.mutex("input").try_lock_for(ms(50)).await.unwrap().is_none());
    for i in &ALL[..3] {
        assert_eq!(servers.held(*i, "input").await.as_deref(), Some(""), "server {i}");
        assert_eq!(servers.run(*i, &["PTTL", &key("input")]).await.as_int(), Some(-1), "server {i}");
    }
    servers.have_nothing_left(&[3, 4]).await;
}

/// The rights in the `ACL SETUSER` line of the README's part on quorums, without user and password.
fn rights() -> Vec<&'static str> {
    let about = include_str!("../../README.md").split("\n## A quorum").nth(1).expect("the README has the part");
    let line = about.split("ACL SETUSER ").nth(1).expect("the part has the line");
    let line = line.split_once("\n```").expect("it ends its block").0;
    line.split_whitespace().filter(|word| *word != "\\").skip(3).collect()
}

#[test]
fn the_rights_in_the_readme_are_the_commands_of_the_scripts_and_of_a_connection() {
    let connection = ["evalsha", "eval", "subscribe", "client|info", "client|kill", "client|setinfo", "select", "info"];
    let mut needed: BTreeSet<_> = connection.map(str::to_owned).into();
    for script in
        ["quorum/acquire.lua", "quorum/release.lua", "quorum/batch_end.lua", "quorum/inspect.lua", "mutex/renew.lua"]
    {
        let path = format!("{}/src/store/scripts/{script}", env!("CARGO_MANIFEST_DIR"));
        let code = std::fs::read_to_string(path).unwrap();
        let calls = code.split("call('").skip(1);
        needed.extend(calls.map(|call| call.split('\'').next().unwrap().to_ascii_lowercase()));
    }
    let granted: BTreeSet<_> = rights().iter().filter_map(|right| right.strip_prefix('+')).map(str::to_owned).collect();
    assert_eq!(granted, needed);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_in_the_readme_are_enough_for_everything() {
    let Some(servers) = Servers::start().await else { return };
    for i in ALL {
        let old = servers.run(*i, &["INFO", "server"]).await.as_text().unwrap().contains("redis_version:7.0.");
        let known = rights().into_iter().filter(|right| !(old && *right == "+client|setinfo"));
        let command: Vec<_> = ["ACL", "SETUSER", "locks", "on", ">pw"].into_iter().chain(known).collect();
        assert!(servers.run(*i, &command).await.is_ok());
    }
    // Servers are asked for their uptime too, and are old enough after some seconds.
    let mut config = servers.config();
    config.urls.iter_mut().for_each(|url| *url = url.replace("redis://", "redis://locks:pw@"));
    config.client.lease = LeaseOptions::new(ms(3000)).with_renew_every(ms(300));
    config.young_servers = false;
    let connect = async || QuorumLocks::connect_with(config.clone()).await.ok();
    let (a, b) = tokio::join!(eventually("connected", PROMPTLY, connect), eventually("connected", PROMPTLY, connect));
    let held = a.mutex("input").lock().await.unwrap();
    assert!(b.mutex("input").try_lock_for(ms(50)).await.unwrap().is_none());
    renewed(&held, 2).await;
    assert!(b.mutex("input").force_release(held.grant_id(), "the test asks").await.unwrap());
    held.lost().await;
    let held = b.mutex("input").lock().await.unwrap();
    let waits = {
        let mutex = a.mutex("input");
        tokio::spawn(async move { mutex.lock().await.unwrap().release().await })
    };
    eventually("the first client waits", PROMPTLY, async || {
        (servers.run(0, &["ZCARD", &format!("{}:w", crate::servers::key("input"))]).await.as_int() == Some(1))
            .then_some(())
    })
    .await;
    held.release().await.unwrap();
    waits.await.unwrap().unwrap();
    for i in ALL {
        assert_eq!(servers.run(*i, &["ACL", "LOG"]).await.into_parts(), [], "server {i} has denied something");
    }
}
