//! Input that cannot be meant, and secrets.

use std::time::Duration;

use lock_redis::{ClientOptions, ErrorKind, LeaseOptions, LockName, Phase, RedisConfig, RedisLocks, Retry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::server::{
    COUNTER, HAND_OVER, PROMPTLY, SLACK, Server, configured, eventually, everything_of, hasty, key, ms, obtain, refused,
};

const SECRET: &str = "hunter2-s3cret";

#[tokio::test(flavor = "multi_thread")]
async fn senseless_names_and_durations_are_refused_before_anything_is_sent() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    server.say("CONFIG RESETSTAT").await;
    let long = "x".repeat(LockName::MAX_BYTES + 1);
    // An error shows the beginning of a name that is too long.
    let begun = format!("{}…", "x".repeat(64));
    for (name, shown) in [("", ""), (&*long, &*begun)] {
        let mutex = locks.mutex(name);
        let outcomes = [
            mutex.lock().await.map(drop),
            mutex.try_lock().await.map(drop),
            mutex.try_lock_for(ms(50)).await.map(drop),
        ];
        for outcome in outcomes {
            let error = refused(outcome, &[ErrorKind::InvalidArgument], &[Phase::Configure], shown, "");
            assert_eq!(error.retry(), Retry::Never);
        }
        assert_eq!(mutex.inspect().await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let day = Duration::from_secs(24 * 60 * 60);
    for ttl in [Duration::ZERO, ms(99), day + ms(1), Duration::MAX] {
        let mutex = locks.mutex("input").with_ttl(ttl);
        for outcome in [mutex.lock().await.map(drop), mutex.try_lock_for(ms(50)).await.map(drop)] {
            refused(outcome, &[ErrorKind::InvalidArgument], &[Phase::Configure], "input", "");
        }
        let mut options = ClientOptions::default();
        options.lease = LeaseOptions::new(ttl);
        let outcome = RedisLocks::connect_with(RedisConfig::new(server.url()).with_client(options)).await;
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let calls = server.say("INFO commandstats").await.as_text().unwrap();
    assert!(!calls.contains("cmdstat_eval"), "a script was run: {calls}");
    assert_eq!(server.say("DBSIZE").await.as_int(), Some(0));
    // At their limits they work.
    for ttl in [ms(100), day] {
        let mutex = locks.mutex("x".repeat(LockName::MAX_BYTES)).with_ttl(ttl);
        let held = eventually("granted", PROMPTLY, async || match mutex.try_lock().await {
            // None: a grant that came too late is still being released.
            Ok(held) => held,
            Err(error) => {
                assert_eq!((error.kind(), ttl), (ErrorKind::TimedOut, ms(100)), "{error:?}");
                None
            }
        })
        .await;
        // 100 ms may be over before a busy machine gets to release it.
        if let Err(error) = held.release().await {
            assert_eq!((error.kind(), ttl), (ErrorKind::NotHeld, ms(100)));
        }
    }
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_url_is_refused_without_its_password() {
    let wrong = [
        "",
        "hunter2-s3cret",
        "redis://",
        "http://:hunter2-s3cret@127.0.0.1/",
        "redis://:hunter2-s3cret@127.0.0.1:port/",
        "redis://:hunter2-s3cret@127.0.0.1:6379/database",
        "redis://:hunter2-s3cret@[::1/",
        "redis+unix:///tmp/socket?password=hunter2-s3cret",
        "unix://tmp/socket?pass=hunter2-s3cret",
        #[cfg(not(feature = "tls"))]
        "rediss://:hunter2-s3cret@127.0.0.1/",
        "redis-sentinel://:hunter2-s3cret@127.0.0.1/",
        "redis-cluster://:hunter2-s3cret@127.0.0.1/1",
    ];
    for url in wrong {
        let error = RedisLocks::connect(url).await.expect_err(url);
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::Unsupported), "{url}: {error:?}");
        assert_eq!((error.retry(), error.backend()), (Retry::Never, Some("redis")), "{url}: {error:?}");
        assert!(!everything_of(&error).concat().contains(SECRET), "{url}: {error:?}");
    }
    for prefix in ["", "a{b", "}", &*"x".repeat(257)] {
        let error = RedisLocks::connect_with(RedisConfig::new("redis://127.0.0.1/").with_prefix(prefix)).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidArgument, "{prefix:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_the_server_does_not_have_is_wrong_input() {
    let Some(server) = Server::start().await else { return };
    let url = format!("{}/16", server.url().trim_end_matches('/'));
    let error = configured(RedisConfig::new(url)).await.unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::InvalidArgument, Phase::Connect), "{error:?}");
    assert!(error.to_string().contains("/16: the server has no such database"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_denied_and_leaves_no_connection() {
    let Some(server) = Server::start().await else { return };
    server.say(&format!("ACL SETUSER worker on >{SECRET} ~* &* +@all")).await;
    let error = configured(RedisConfig::new(server.url_as("worker", "not-the-password"))).await.unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Denied, Phase::Connect), "{error:?}");
    assert!(error.to_string().contains(&server.shown()), "{error}");
    assert!(!everything_of(&error).concat().contains("not-the-password"), "{error:?}");
    server.say("ACL SETUSER default off").await;
    let error = configured(RedisConfig::new(server.url())).await.unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Denied, Phase::Connect), "{error:?}");
    let locks = configured(RedisConfig::new(server.url_as("worker", SECRET))).await.unwrap();
    obtain(&locks, "input", SLACK).await.release().await.unwrap();
    drop(locks);
    crate::links::are_gone(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_error_and_no_debug_text_shows_the_password() {
    let Some(server) = Server::start().await else { return };
    server.say(&format!("ACL SETUSER worker on >{SECRET} ~* &* +@all")).await;
    let options = ClientOptions::default().with_patience(hasty().patience);
    let config = RedisConfig::new(server.url_as("worker", SECRET)).with_client(options);
    let mut said = vec![format!("{config:?}"), format!("{config:#?}")];
    let locks = configured(config.clone()).await.unwrap();
    let mutex = locks.mutex("input");
    let held = mutex.lock().await.unwrap();
    said.extend([format!("{locks:?}"), format!("{:?}", locks.backend()), format!("{mutex:?}"), format!("{held:?}")]);
    said.push(format!("{:?}", lock_redis::Locks::from(locks.clone())));
    let mut errors = Vec::new();
    server.run(&["LPUSH", &key("wrong"), "type"]).await;
    errors.push(locks.mutex("wrong").try_lock().await.unwrap_err());
    server.say("CONFIG SET maxmemory 1").await;
    errors.push(locks.mutex("memory").try_lock().await.unwrap_err());
    server.stop().unwrap();
    errors.push(locks.mutex("frozen").try_lock().await.unwrap_err());
    errors.push(RedisLocks::connect_with(config.clone()).await.unwrap_err());
    server.kill().unwrap();
    errors.push(locks.mutex("down").try_lock().await.unwrap_err());
    errors.push(locks.mutex("down").lock().await.unwrap_err());
    errors.push(locks.mutex("down").inspect().await.unwrap_err());
    errors.push(held.extend(ms(20_000)).await.unwrap_err());
    errors.push(held.release().await.unwrap_err());
    errors.push(RedisLocks::connect_with(config).await.unwrap_err());
    said.extend(errors.iter().flat_map(everything_of));
    for text in said {
        assert!(!text.contains(SECRET), "{text}");
        assert!(!text.contains("worker:"), "a URL's user part is no business of a log: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_is_a_typed_error_that_leaves_nothing_else() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let mutex = locks.mutex("input");
    for spoiled in [&*key("input"), COUNTER] {
        server.run(&["LPUSH", spoiled, "type"]).await;
        let shown = server.shown();
        refused(mutex.try_lock().await, &[ErrorKind::Protocol], &[Phase::Acquire], "input", &shown);
        refused(mutex.lock().await, &[ErrorKind::Protocol], &[Phase::Acquire], "input", &shown);
        refused(mutex.try_lock_for(ms(300)).await, &[ErrorKind::Protocol], &[Phase::Acquire], "input", &shown);
        // What somebody else has put there is all that is there.
        let left = async || (server.say("KEYS *").await.into_parts().len() == 1).then_some(());
        crate::server::eventually("only the foreign key is left", ms(2000), left).await;
        server.run(&["DEL", spoiled]).await;
        obtain(&locks, "input", HAND_OVER + SLACK).await.release().await.unwrap();
        server.run(&["DEL", COUNTER]).await;
    }
    // Text that is no token is none.
    for garbage in ["", "x", "q", "xq", "zzzzzzzzzzzzzzzz", "!!!!!!!!!!!!!!!!", "1e300", "-5"] {
        server.run(&["SET", COUNTER, garbage]).await;
        obtain(&locks, "input", HAND_OVER + SLACK).await.release().await.unwrap();
    }
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_key_was_replaced_by_another_type_is_lost_and_not_held() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let (renewed, released) = (
        locks.mutex("renewed").with_ttl(ms(6000)).lock().await.unwrap(),
        locks.mutex("released").lock().await.unwrap(),
    );
    for name in ["renewed", "released"] {
        server.run(&["DEL", &key(name)]).await;
        server.run(&["LPUSH", &key(name), "type"]).await;
    }
    assert_eq!(released.release().await.unwrap_err().kind(), ErrorKind::NotHeld);
    let reason = crate::server::soon("the next renewal finds it out", ms(6000), renewed.lost()).await;
    assert_eq!(reason, lock_redis::LossReason::Taken);
    assert_eq!(server.say("KEYS lock:mutex:*d}").await.into_parts().len(), 2, "foreign data was touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_key_was_replaced_by_another_type_is_told_so() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let held = locks.mutex("replaced").lock().await.unwrap();
    let waits = locks.mutex("replaced");
    let waiting = tokio::spawn(async move { waits.lock().await.map(drop) });
    server.until_in_line(&key("replaced"), 1).await;
    server.run(&["DEL", &key("replaced")]).await;
    server.run(&["LPUSH", &key("replaced"), "type"]).await;
    // Long before its patience is over: its next heartbeat is refused.
    let outcome = crate::server::soon("the waiter is told", ms(4000), waiting).await.unwrap();
    refused(outcome, &[ErrorKind::Protocol], &[Phase::Acquire], "replaced", "127.0.0.1");
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::NotHeld);
}

/// Another kind of server stays one; a connection that ends may be made again.
#[tokio::test]
async fn a_server_that_speaks_another_protocol_is_told_and_no_reason_to_try_again() {
    let cases: [(&[u8], _); 3] = [
        (b"ERROR\r\n", ErrorKind::Protocol),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ErrorKind::Protocol),
        (b"%7\r\n$6\r\nser", ErrorKind::Unavailable),
    ];
    for (says, expected) in cases {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let answers = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = [0; 1024];
                // Both fail if the client has gone, which is its right.
                let _ = stream.read(&mut asked).await;
                let _ = stream.write_all(says).await;
            }
        };
        let error = tokio::select! {
            connected = RedisLocks::connect(&url) => connected.unwrap_err(),
            () = answers => unreachable!("it answers for ever"),
        };
        assert_eq!(error.kind(), expected, "{error}: {:?}", std::error::Error::source(&error));
    }
}
