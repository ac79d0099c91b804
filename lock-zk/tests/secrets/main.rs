//! No user and no password in anything that is printed: a program of its own, since it hears every log of the process.

#![cfg(test)]

use std::fmt::{Debug, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit::testing::{PROMPTLY, connected, installed, soon};
use lock_testkit_servers::zookeeper::ZooKeeperServer;
use lock_zk::{Access, Error, ErrorKind, Tls, ZkConfig, ZkLocks};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const USER: &str = "U5ER";
const PASSWORD: &str = "S3CRET";

/// Everything that was logged, by whatever crate.
static LOG: Mutex<String> = Mutex::new(String::new());

/// Hears every span and event.
struct Everything;

/// Writes values down.
struct Values<'a>(&'a mut String);

impl Visit for Values<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

fn log(write: impl FnOnce(&mut Values<'_>)) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    write(&mut Values(&mut log));
    log.push('\n');
}

impl Subscriber for Everything {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        log(|values| span.record(values));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        log(|written| values.record(written));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        log(|values| event.record(values));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn clean(shown: &str) {
    for secret in [USER, PASSWORD] {
        let line = shown.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{secret} in: {line:?}");
    }
}

/// An error with all of its causes.
fn told(error: &Error) -> String {
    let mut told = format!("{error} {error:?}");
    let mut cause = std::error::Error::source(error);
    while let Some(because) = cause {
        write!(told, " {because} {because:?}").unwrap();
        cause = because.source();
    }
    told
}

async fn connect(config: ZkConfig, by_async: bool) -> Result<ZkLocks, Error> {
    #[cfg(feature = "zookeeper-async")]
    if by_async {
        return ZkLocks::connect_with_zookeeper_async(config).await;
    }
    assert!(!by_async);
    ZkLocks::connect_with(config).await
}

#[tokio::test]
async fn no_user_and_no_password_is_printed() {
    tracing::subscriber::set_global_default(Everything).unwrap();
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    for by_async in [false, cfg!(feature = "zookeeper-async")] {
        let link = Proxy::to(server.address(), Protocol::ZooKeeper).unwrap();
        let config = ZkConfig::new(format!("zk://{}", link.address())).with_prefix("own").with_access(Access::Creator);
        let config = config.with_session_timeout(Duration::from_secs(4)).with_tick_time(Duration::from_millis(200));
        let config = config.with_digest(USER, PASSWORD);
        let locks = connected(async || connect(config.clone(), by_async).await).await.unwrap();
        let held = locks.mutex("kept").lock().await.unwrap();
        let other = ZkConfig::new(server.url()).with_prefix("own").with_digest("somebody", "else");
        let only = Access::Only(vec![("digest".to_owned(), format!("{USER}:{PASSWORD}"))]);
        let only = ZkConfig::new(server.url()).with_prefix("only").with_access(only);
        clean(&format!("{only:?} {:?}", connect(only.clone(), by_async).await));
        let denied = match connect(other, by_async).await {
            Ok(other) => other.mutex("kept").try_lock().await.map(drop),
            Err(error) => Err(error),
        };
        let denied = denied.unwrap_err();
        assert_eq!(denied.kind(), ErrorKind::Denied);
        clean(&format!("{config:?} {locks:?} {held:?} {} {:?}", told(&denied), locks.mutex("kept")));
        held.release().await.unwrap();
        let no = || Toxic::Answer { text: "-115".to_owned() };
        let injected =
            (1..=100).map(|nth| link.inject(LinkFault::new(no(), Direction::ToServer).on_request(nth, USER)));
        let _refusals: Vec<_> = injected.collect();
        let refused = soon("refused", PROMPTLY, connect(config, by_async)).await.unwrap_err();
        clean(&told(&refused));
    }
    for wrong in [
        ZkConfig::new(format!("zk://{USER}:{PASSWORD}@127.0.0.1")),
        ZkConfig::new("zk://127.0.0.1").with_digest(format!("{USER}:"), PASSWORD),
        ZkConfig::new("zk://127.0.0.1").with_sasl_digest(USER, PASSWORD).with_prefix(""),
        ZkConfig::new("zks://127.0.0.1").with_tls(Tls::new(PASSWORD).with_client_pem(USER, PASSWORD)),
    ] {
        let error = ZkLocks::connect_with(wrong.clone()).await.unwrap_err();
        clean(&format!("{wrong:?} {}", told(&error)));
    }
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(log.contains("session"), "nothing was logged");
    clean(&log);
}
