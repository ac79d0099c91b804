//! The rights that a user of the locks needs: what the README says is enough, and nothing is tried beyond it.

use std::collections::BTreeSet;

use lock_redis::{ClientOptions, Dialect, ErrorKind, LeaseOptions, LockName, Phase, RedisConfig, RedisLocks};

use crate::queue::QueuedTasks;
use crate::server::{
    COUNTER, HAND_OVER, PROMPTLY, SLACK, Server, calls, configured, connections_so_far, eventually, hasty, long, ms,
    obtain, often, refused, renewed, soon,
};

const README: &str = include_str!("../../README.md");

/// The rights in the README's `ACL SETUSER` line, without user and password.
fn rights() -> Vec<&'static str> {
    let line = README.split_once("ACL SETUSER ").expect("the README has the line").1;
    let line = line.split_once("\n```").expect("it ends its block").0;
    line.split_whitespace().filter(|word| *word != "\\").skip(3).collect()
}

async fn user(server: &Server, name: &str, rights: &[&str]) {
    let version = server.say("INFO server").await.as_text().unwrap();
    let old = version.contains("redis_version:7.0.");
    let known = rights.iter().filter(|right| !(old && **right == "+client|setinfo")).copied();
    let command: Vec<_> = ["ACL", "SETUSER", name, "on", ">pw"].into_iter().chain(known).collect();
    assert!(server.run(&command).await.is_ok());
}

#[test]
fn the_rights_in_the_readme_are_the_commands_of_the_scripts_and_of_a_connection() {
    let mut needed: BTreeSet<_> =
        ["evalsha", "eval", "subscribe", "client|info", "client|kill", "client|setinfo", "client|tracking", "select"]
            .map(str::to_owned)
            .into();
    for folder in ["", "/mutex", "/holders", "/several"] {
        for file in std::fs::read_dir(format!("{}/src/store/scripts{folder}", env!("CARGO_MANIFEST_DIR"))).unwrap() {
            let file = file.unwrap().path();
            if file.is_file() {
                let code = std::fs::read_to_string(file).unwrap();
                let calls = code.split("call('").skip(1);
                needed.extend(calls.map(|call| {
                    let mut words = call.split('\'');
                    let command = words.next().unwrap().to_ascii_lowercase();
                    // Of a container it is the command within that is allowed.
                    let mut within = || words.nth(1).unwrap().to_ascii_lowercase();
                    if command == "pubsub" { format!("{command}|{}", within()) } else { command }
                }));
            }
        }
    }
    // Only beside Redisson, where the README says so.
    assert!(needed.remove("pubsub|numsub") && README.contains("`+pubsub|numsub`"));
    let granted: BTreeSet<_> = rights().iter().filter_map(|right| right.strip_prefix('+')).map(str::to_owned).collect();
    assert!(needed.len() > 20, "the scripts were not found");
    let [missing, superfluous] =
        [needed.difference(&granted), granted.difference(&needed)].map(|rights| rights.collect::<Vec<_>>());
    assert!(missing.is_empty() && superfluous.is_empty(), "missing: {missing:?}, superfluous: {superfluous:?}");
}

async fn denials(server: &Server) -> String {
    server.say("ACL LOG").await.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_in_the_readme_are_enough_for_everything() {
    let Some(server) = Server::start().await else { return };
    user(&server, "locks", &rights()).await;
    let connect = async || configured(RedisConfig::new(server.url_as("locks", "pw"))).await.unwrap();
    let (a, b) = (connect().await, connect().await);
    let jobs = LockName::from_key("jobs").unwrap();
    user(&server, "locks", &["~jobs"]).await;
    for name in [LockName::from("rights"), jobs] {
        let held = a.mutex(&name).with_lease(often()).lock().await.unwrap();
        assert!(b.mutex(&name).try_lock().await.unwrap().is_none());
        assert!(b.mutex(&name).try_lock_for(ms(50)).await.unwrap().is_none());
        let waiting = tokio::spawn(obtain(&b, &name, PROMPTLY));
        eventually("one is in the queue", PROMPTLY, async || {
            (a.mutex(&name).inspect().await.unwrap().waiters.len() == 1).then_some(())
        })
        .await;
        // Through renewals and questions.
        renewed(&held, 3).await;
        held.release().await.unwrap();
        let held = soon("pushed", HAND_OVER + SLACK, waiting).await.unwrap();
        held.extend(ms(20_000)).await.unwrap();
        assert!(a.mutex(&name).force_release(held.grant_id(), "the test asks").await.unwrap());
        soon("told by push", HAND_OVER + SLACK, held.lost()).await;
        // The lock of a holder that forgot it.
        let lease = LeaseOptions::new(ms(1500)).with_auto_renew(false);
        std::mem::forget(a.mutex(&name).with_lease(lease).lock().await.unwrap());
        obtain(&b, &name, PROMPTLY).await.release().await.unwrap();
    }
    // Connections that are cut are replaced, scripts that are flushed told again, a clock that was set back endured.
    server.say("SCRIPT FLUSH").await;
    server.run(&["SET", COUNTER, "9007199254000000"]).await;
    let held = a.mutex("line").with_lease(long()).lock().await.unwrap();
    let queue = QueuedTasks::up(&server, &[&a, &b], "line", 4).await;
    server.say("CLIENT KILL USER locks").await;
    held.release().await.unwrap();
    assert_eq!(queue.order(HAND_OVER * 4 + SLACK).await, [0, 1, 2, 3]);
    assert_eq!(denials(&server).await, "[]");
    server.is_as_new(&a, "line").await;
    // And it is a real limit.
    let outcome = a.mutex(LockName::from_key("others").unwrap()).try_lock().await;
    refused(outcome, &[ErrorKind::Denied], &[Phase::Acquire], "others", &server.shown());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_missing_is_denied_definitely() {
    let Some(server) = Server::start().await else { return };
    user(&server, "locks", &rights()).await;
    let mut options = ClientOptions::default();
    options.patience = hasty().patience;
    let config = RedisConfig::new(server.url_as("locks", "pw")).with_client(options);
    let connect = async || configured(config.clone()).await;
    for missing in ["-subscribe", "resetchannels"] {
        user(&server, "locks", &[missing]).await;
        let error = connect().await.unwrap_err();
        assert_eq!((error.kind(), error.phase()), (ErrorKind::Denied, Phase::Connect), "{missing}: {error:?}");
        user(&server, "locks", &rights()).await;
    }
    let locks = connect().await.unwrap();
    for missing in ["-evalsha", "-set", "resetkeys"] {
        user(&server, "locks", &[missing]).await;
        let shown = server.shown();
        refused(locks.mutex("rights").try_lock().await, &[ErrorKind::Denied], &[Phase::Acquire], "rights", &shown);
        refused(locks.mutex("rights").lock().await, &[ErrorKind::Denied], &[Phase::Acquire], "rights", &shown);
        server.has_nothing_left().await;
        user(&server, "locks", &rights()).await;
        server.is_as_new(&locks, "rights").await;
    }
    // Taken away, and the password changed, while the client lives: a typed error, and a cure when they are back.
    server.say("ACL DELUSER locks").await;
    let error = locks.mutex("rights").lock().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error:?}");
    user(&server, "locks", &rights()).await;
    obtain(&locks, "rights", PROMPTLY).await.release().await.unwrap();
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_a_password_logs_in_as_that_user() {
    let Some(server) = Server::start().await else { return };
    user(&server, "locks", &[&rights()[..], &["nopass"]].concat()).await;
    let config = RedisConfig::new(server.url().replace("redis://", "redis://locks@"));
    let locks = configured(config.clone()).await.unwrap();
    obtain(&locks, "rights", PROMPTLY).await.release().await.unwrap();
    let clients = server.say("CLIENT LIST").await.as_text().unwrap();
    assert!(clients.lines().any(|client| client.contains(" user=locks ")), "{clients}");
    // Whoever forgot the password of a user that has one is told so, and is nobody else.
    user(&server, "locks", &["resetpass"]).await;
    for config in [config, RedisConfig::new(server.url()).with_credentials("locks", "")] {
        let error = configured(config).await.unwrap_err();
        assert_eq!((error.kind(), error.phase()), (ErrorKind::Denied, Phase::Connect), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_wait_for_replicas_each_grant_is_denied_over_one_connection() {
    let Some(server) = Server::start().await else { return };
    user(&server, "locks", &rights()).await;
    let config = RedisConfig::new(server.url_as("locks", "pw")).with_replicas(1, ms(1000));
    let locks = configured(config).await.unwrap();
    let before = connections_so_far(&server).await;
    for _ in 0..20 {
        let outcome = locks.mutex("rights").try_lock().await;
        refused(outcome, &[ErrorKind::Denied], &[Phase::Acquire], "rights", &server.shown());
        server.has_nothing_left().await;
    }
    assert_eq!(connections_so_far(&server).await - before, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_identify_connections_all_still_works() {
    let Some(server) = Server::start().await else { return };
    user(&server, "locks", &[&rights()[..], &["-client"]].concat()).await;
    let locks = configured(RedisConfig::new(server.url_as("locks", "pw"))).await.unwrap();
    for _ in 0..3 {
        obtain(&locks, "rights", PROMPTLY).await.release().await.unwrap();
        server.stop().unwrap();
        assert!(locks.mutex("rights").with_ttl(ms(1000)).try_lock().await.is_err());
        server.cont().unwrap();
        server.say("CLIENT KILL USER locks").await;
    }
    // Nobody tells it of a foreign release either; it asks.
    user(&server, "locks", &["~jobs"]).await;
    assert!(server.say("SET jobs foreign NX PX 30000").await.is_ok());
    let waiting = tokio::spawn(obtain(&locks, LockName::from_key("jobs").unwrap(), PROMPTLY));
    server.until_in_line("lock:key:{jobs}:jobs", 1).await;
    server.say("DEL jobs").await;
    soon("let in", HAND_OVER + SLACK, waiting).await.unwrap().release().await.unwrap();
    // What could not be settled on a clean connection ends with its lease.
    obtain(&locks, "rights", PROMPTLY).await.release().await.unwrap();
    server.is_as_new(&locks, "rights").await;
}

/// Redisson's waiters find out by themselves. The lock is free, and whoever freed it is told so.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_tell_redisson_a_shared_lock_is_released_and_handed_over_all_the_same() {
    let Some(server) = Server::start().await else { return };
    user(&server, "locks", &[&rights()[..], &["~jobs", "+pubsub|numsub"]].concat()).await;
    let config = RedisConfig::new(server.url_as("locks", "pw")).with_dialect_at("jobs", Dialect::Redisson);
    let (a, b) = (configured(config.clone()).await.unwrap(), configured(config).await.unwrap());
    let jobs = LockName::from_key("jobs").unwrap();
    for by_force in [true, false] {
        let held = a.mutex(&jobs).with_lease(long()).lock().await.unwrap();
        let waiting = tokio::spawn(obtain(&b, &jobs, PROMPTLY));
        server.until_in_line("lock:key:{jobs}:jobs", 1).await;
        if by_force {
            assert!(a.mutex(&jobs).force_release(held.grant_id(), "the test asks").await.unwrap());
            soon("told by push", HAND_OVER + SLACK, held.lost()).await;
        } else {
            held.release().await.unwrap();
        }
        soon("let in", HAND_OVER + SLACK, waiting).await.unwrap().release().await.unwrap();
    }
    server.has_nothing_left().await;
}

/// On a server that has none it shows that nobody asks for one.
#[tokio::test(flavor = "multi_thread")]
async fn a_compare_and_delete_that_the_user_may_not_call_is_not_called() {
    let Some(server) = Server::start().await else { return };
    user(&server, "locks", &rights()).await;
    let connect = async || configured(RedisConfig::new(server.url_as("locks", "pw"))).await.unwrap();
    let pair = async |locks: &RedisLocks| {
        obtain(locks, "rights", PROMPTLY).await.release().await.unwrap();
        server.has_nothing_left().await;
    };
    // The rights in the README's line are without it.
    let without = connect().await;
    server.say("CONFIG RESETSTAT").await;
    pair(&without).await;
    assert_eq!((calls(&server, "delifeq").await, calls(&server, "delex").await), (0, 0));
    assert_eq!(denials(&server).await, "[]");
    let Some(name) = server.own_delete().await else { return };
    let (granted, denied) = (format!("+{name}"), format!("-{name}"));
    // Without the echo it is of no use.
    user(&server, "locks", &[&granted]).await;
    pair(&connect().await).await;
    assert_eq!((calls(&server, name).await, &*denials(&server).await), (0, "[]"));
    user(&server, "locks", &["+echo"]).await;
    let with = connect().await;
    pair(&with).await;
    assert_eq!(calls(&server, name).await, 1);
    // A right that is taken away is missed once.
    user(&server, "locks", &[&denied]).await;
    for _ in 0..3 {
        pair(&with).await;
    }
    let mut log = server.say("ACL LOG").await.into_parts();
    assert_eq!(log.len(), 1, "{log:?}");
    // Denials that are alike are counted.
    let denials = log.remove(0).into_parts();
    assert_eq!(denials[1].as_int(), Some(1), "{denials:?}");
    // Nobody can tell whose an answer is for which the echo is missing.
    user(&server, "locks", &[&granted]).await;
    let with = connect().await;
    user(&server, "locks", &["-echo"]).await;
    let error = obtain(&with, "rights", PROMPTLY).await.release().await.unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Release), "{error:?}");
    server.has_nothing_left().await;
    pair(&with).await;
}
