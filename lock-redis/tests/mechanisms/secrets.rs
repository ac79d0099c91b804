//! Secrets: whatever the client shows of itself, an error or in the log, there is no user and no password in it.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::{LazyLock, Mutex};

use futures_util::future::join_all;
use lock_redis::{Error, ErrorKind, Locks, QuorumConfig, QuorumLocks, RedisConfig, RedisLocks};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::server::{PROMPTLY, Server, configured, eventually, everything_of, hasty, long, obtain, soon};

const USER: &str = "s3cret-user";
const PASSWORD: &str = "s3cret-password";

/// The sentences in the log of this process, each once.
static SAID: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

/// Listens to every span and event.
struct Log;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

impl Line {
    fn end(self) {
        SAID.lock().unwrap().insert(self.0);
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(span.metadata().name().to_owned());
        span.record(&mut line);
        line.end();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut line = Line(String::new());
        values.record(&mut line);
        line.end();
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().target().to_owned());
        event.record(&mut line);
        line.end();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Everything that was shown.
#[derive(Default)]
struct Shown(Vec<String>);

impl Shown {
    fn of(&mut self, value: &dyn Debug) {
        self.0.extend([format!("{value:?}"), format!("{value:#?}")]);
    }

    fn error(&mut self, error: &Error) {
        self.0.extend(everything_of(error));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_is_shown_told_or_logged_has_a_user_or_a_password_in_it() {
    let Some(server) = Server::start().await else { return };
    tracing::subscriber::set_global_default(Log).unwrap();
    let mut shown = Shown::default();
    let rights = async |more: &str| {
        let line = format!("ACL SETUSER {USER} on >{PASSWORD} ~* &* +@all {more}");
        assert!(server.say(line.trim()).await.is_ok());
    };
    rights("").await;
    let config = RedisConfig::new(server.url_as(USER, PASSWORD));
    let other = RedisConfig::new(server.url()).with_credentials(USER, PASSWORD).with_client(hasty());
    let (a, b) = (configured(config.clone()).await.unwrap(), configured(other.clone()).await.unwrap());
    let quorum = QuorumConfig::new([server.url_as(USER, PASSWORD)]).with_young_servers(true);
    shown.of(&(&config, &other, &a, &b, &quorum));
    match QuorumLocks::connect_with(quorum).await {
        Ok(quorum) => shown.of(&quorum),
        Err(error) => shown.error(&error),
    }
    // Handles and guards.
    let held = a.mutex("secrets").with_lease(long()).lock().await.unwrap();
    shown.of(&(a.mutex("x"), a.rwlock("x"), a.semaphore("x", 2), a.reentrant("x"), Locks::from(b.clone()), &held));
    shown.of(&a.rwlock("r").write().await.unwrap());
    shown.of(&a.semaphore("s", 2).acquire().await.unwrap());
    shown.of(&a.mutex("secrets").inspect().await.unwrap());
    // Refused: a command, a key, within a script and without.
    for missing in ["-evalsha", "-set", "resetkeys", "-subscribe", "resetchannels"] {
        rights(missing).await;
        for error in [
            b.mutex("refused").try_lock().await.err(),
            b.rwlock("refused").try_read().await.err(),
            b.mutex("secrets").inspect().await.err(),
            configured(config.clone()).await.err(),
        ] {
            error.iter().for_each(|error| shown.error(error));
        }
        rights("").await;
    }
    // The server stands still, connections end, and credentials are refused.
    server.stop().unwrap();
    let stopped = join_all((0..4).map(async |i| b.mutex(format!("stopped/{i}")).try_lock().await.err())).await;
    stopped.iter().flatten().for_each(|error| shown.error(error));
    server.cont().unwrap();
    let wrong = RedisConfig::new(server.url_as(USER, "s3cret-guess"));
    shown.error(&configured(wrong).await.unwrap_err());
    let unresolved = RedisLocks::connect(format!("redis://{USER}:{PASSWORD}@no-such-host.invalid/")).await.unwrap_err();
    assert!(unresolved.to_string().contains("could not be resolved"), "{unresolved:?}");
    shown.error(&unresolved);
    server.say(&format!("ACL DELUSER {USER}")).await;
    eventually("the refusal is told as one", PROMPTLY, async || {
        let error = b.mutex("refused").try_lock().await.unwrap_err();
        shown.error(&error);
        (error.kind() == ErrorKind::Denied).then_some(())
    })
    .await;
    shown.error(&held.release().await.unwrap_err());

    let said = SAID.lock().unwrap();
    assert!(shown.0.len() > 50 && said.len() > 10, "{} and {}", shown.0.len(), said.len());
    let leaked: Vec<_> = shown.0.iter().chain(&*said).filter(|text| text.contains("s3cret")).collect();
    assert!(leaked.is_empty(), "{leaked:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_are_refused_on_a_reconnect_are_told_to_all_who_wait_and_ask() {
    let Some(server) = Server::start().await else { return };
    assert!(server.say("ACL SETUSER rotates on >before ~* &* +@all").await.is_ok());
    let locks = configured(RedisConfig::new(server.url_as("rotates", "before"))).await.unwrap();
    let holder = server.client().await;
    let held = holder.mutex("rotates").with_lease(long()).lock().await.unwrap();
    let mutex = locks.mutex("rotates");
    let waiting = tokio::spawn(async move { mutex.lock().await.map(drop) });
    server.until_queued("rotates", 1).await;
    assert!(server.say("ACL SETUSER rotates resetpass >after").await.is_ok());
    server.say("CLIENT KILL USER rotates").await;
    let denied = soon("who waits is told", PROMPTLY, waiting).await.unwrap().unwrap_err();
    // It stood in the queue, and may have been granted the lock before its connection ended.
    assert_eq!(denied.kind(), ErrorKind::Indeterminate, "{denied:?}");
    assert!(everything_of(&denied).concat().contains("the credentials were refused"), "{denied:?}");
    let mutex = locks.mutex("free");
    let denied = soon("who asks is told", PROMPTLY, async { mutex.lock().await }).await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied:?}");
    assert_eq!(denied.to_string().matches("no connection").count(), 1, "{denied}");
    // And it heals when they are right again.
    assert!(server.say("ACL SETUSER rotates resetpass >before").await.is_ok());
    held.release().await.unwrap();
    obtain(&locks, "rotates", PROMPTLY).await.release().await.unwrap();
}
