//! A server of a test's own, clients of it, and waiting with a deadline.

use std::fmt::Debug;
use std::ops::Deref;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use lock_redis::{ClientOptions, Error, ErrorKind, LeaseOptions, LockName, MutexGuard, Phase, RedisConfig, RedisLocks};
use lock_testkit::testing::connected;
pub(crate) use lock_testkit::testing::{PROMPTLY, about_time, eventually, installed, renewed, soon};
use lock_testkit_servers::redis::{RedisOptions, RedisServer};
use lock_testkit_servers::resp::{Resp, Value};

/// The time for which a lock may be free while somebody waits for it, and what a busy machine may add to that.
pub(crate) const HAND_OVER: Duration = Duration::from_millis(1000);
pub(crate) const SLACK: Duration = Duration::from_millis(1500);
/// An operation timeout that makes trouble show soon.
pub(crate) const SHORT: Duration = Duration::from_millis(500);

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A server of a test's own, with an operator's connection to it.
#[derive(Debug)]
pub(crate) struct Server {
    own: RedisServer,
    operator: Resp,
}

impl Deref for Server {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        &self.own
    }
}

impl Server {
    /// `None`, loudly, where no `redis-server` is installed.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with(&RedisOptions::new()).await
    }

    /// Starts one with these options.
    pub(crate) async fn start_with(options: &RedisOptions) -> Option<Self> {
        let own = installed(RedisServer::start_with(options).await)?;
        Some(Self { operator: own.client().unwrap(), own })
    }

    /// `host:port/database`, as errors name it.
    pub(crate) fn shown(&self) -> String {
        format!("127.0.0.1:{}/0", self.port().unwrap())
    }

    /// The URL with credentials.
    pub(crate) fn url_as(&self, user: &str, password: &str) -> String {
        self.url().replace("redis://", &format!("redis://{user}:{password}@"))
    }

    /// A new client with the default options.
    pub(crate) async fn client(&self) -> RedisLocks {
        configured(RedisConfig::new(self.url())).await.unwrap()
    }

    /// A new client with an operation timeout of 500 ms.
    pub(crate) async fn hasty_client(&self) -> RedisLocks {
        configured(RedisConfig::new(self.url()).with_client(hasty())).await.unwrap()
    }

    /// A new client with a patience of 3 s.
    pub(crate) async fn impatient_client(&self) -> RedisLocks {
        let mut options = ClientOptions::default();
        options.patience = hasty().patience;
        configured(RedisConfig::new(self.url()).with_client(options)).await.unwrap()
    }

    /// A new client with an operation timeout that is never over.
    pub(crate) async fn patient_client(&self) -> RedisLocks {
        let mut options = hasty();
        options.op_timeout = PROMPTLY;
        configured(RedisConfig::new(self.url()).with_client(options)).await.unwrap()
    }

    /// Kills the server and starts it again, without what it knew unless it is a persistent one.
    pub(crate) async fn restart(&self) {
        self.own.restart().await.unwrap();
        // The operator's connection is of before.
        let _ = self.operator.command(&["PING"]).await;
    }

    /// A connection of a client that is none of ours.
    pub(crate) fn stranger(&self) -> Resp {
        self.own.client().unwrap()
    }

    /// One command of the operator.
    pub(crate) async fn run<P: AsRef<[u8]>>(&self, command: &[P]) -> Value {
        self.operator.command(command).await.unwrap()
    }

    /// One command of the operator, its words separated by blanks.
    pub(crate) async fn say(&self, command: &str) -> Value {
        self.run(&command.split(' ').collect::<Vec<_>>()).await
    }

    /// The name of the server's own compare-and-delete, if it has one.
    pub(crate) async fn own_delete(&self) -> Option<&'static str> {
        for name in ["delifeq", "delex"] {
            let told = self.say(&format!("COMMAND INFO {name}")).await.into_parts();
            if told.into_iter().any(|about| !about.into_parts().is_empty()) {
                return Some(name);
            }
        }
        None
    }

    /// Has every script run once, so that the server knows it, and its first request is the one that counts.
    pub(crate) async fn knows_the_scripts(&self) {
        // That of a release is run for a user who may not call the server's own compare-and-delete.
        let denied = self.own_delete().await.map(|name| format!(" -{name}")).unwrap_or_default();
        assert!(self.say(&format!("ACL SETUSER scripts on >pw ~* &* +@all{denied}")).await.is_ok());
        let connect = async || configured(RedisConfig::new(self.url_as("scripts", "pw"))).await.unwrap();
        let (a, b) = (connect().await, connect().await);
        let held = a.mutex("scripts").lock().await.unwrap();
        let waiting = tokio::spawn(obtain(&b, "scripts", PROMPTLY));
        self.until_queued("scripts", 1).await;
        held.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
        self.say("ACL DELUSER scripts").await;
    }

    /// The number of waiters in the queue for this lock.
    pub(crate) async fn queued(&self, name: &str) -> usize {
        let count = self.run(&["ZCARD", &format!("{}:q", key(name))]).await;
        usize::try_from(count.as_int().unwrap()).unwrap()
    }

    /// Waits until so many stand in the queue.
    pub(crate) async fn until_queued(&self, name: &str, waiters: usize) {
        self.until_in_line(&key(name), waiters).await;
    }

    /// Waits until so many stand in the queue of the lock with this key, whatever its kind.
    pub(crate) async fn until_in_line(&self, key: &str, waiters: usize) {
        let queue = format!("{key}:q");
        eventually(&format!("{waiters} are in the queue"), PROMPTLY, async || {
            (self.run(&["ZCARD", &queue]).await.as_int() == i64::try_from(waiters).ok()).then_some(())
        })
        .await;
    }

    /// No lock, queue or waiter is left: what remains is the counter of tokens, for the rest of a lease why it was ended by
    /// force, and for 10 s the account of a shared key's turns.
    pub(crate) async fn has_nothing_left(&self) {
        let mut left = Vec::new();
        let began = Instant::now();
        while began.elapsed() < PROMPTLY {
            left.clear();
            for key in self.say("KEYS *").await.into_parts().iter().filter_map(Value::as_text) {
                if key != COUNTER && !key.ends_with(":x") && !self.is_an_account(&key).await {
                    left.push(key);
                }
            }
            if left.is_empty() {
                return;
            }
            tokio::time::sleep(ms(20)).await;
        }
        panic!("the server still has {left:?}");
    }

    /// Whether this key has the account of a shared key's turns and nothing else, and ends soon.
    async fn is_an_account(&self, key: &str) -> bool {
        if !(key.starts_with("lock:key:") && key.ends_with(":w")) {
            return false;
        }
        let fields = self.run(&["HKEYS", key]).await.into_parts();
        let known = |field: &Value| {
            ["#run", "#since", "#most", "#yield", "#to", "#who"].map(Some).contains(&field.as_text().as_deref())
        };
        fields.iter().all(known) && (0..=10_000).contains(&self.run(&["PTTL", key]).await.as_int().unwrap())
    }

    /// An uncontended lock and release leave nothing but the counter of tokens.
    pub(crate) async fn is_as_new(&self, locks: &RedisLocks, name: &str) {
        self.has_nothing_left().await;
        let held = obtain(locks, name, PROMPTLY).await;
        held.release().await.unwrap();
        self.has_nothing_left().await;
    }
}

/// The documented key of the counter of tokens.
pub(crate) const COUNTER: &str = "lock:tokens";

/// The documented key, for names without `%` and braces.
pub(crate) fn key(name: &str) -> String {
    format!("lock:mutex:{{{name}}}")
}

/// The number of scripts that clients have had run.
pub(crate) async fn runs(server: &Server) -> u64 {
    calls(server, "eval").await
}

/// The number of calls of commands whose names begin so, by scripts too.
pub(crate) async fn calls(server: &Server, names: &str) -> u64 {
    let stats = server.say("INFO commandstats").await.as_text().unwrap();
    let calls = stats.lines().filter(|line| line.strip_prefix("cmdstat_").is_some_and(|line| line.starts_with(names)));
    calls.map(|line| line.split(['=', ',']).nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

/// The number of connections that the server has taken.
pub(crate) async fn connections_so_far(server: &Server) -> u64 {
    let told = server.say("INFO stats").await.as_text().unwrap();
    let count = told.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    count.unwrap().trim().parse().unwrap()
}

/// A client as configured, or why there is none.
pub(crate) async fn configured(config: RedisConfig) -> Result<RedisLocks, Error> {
    connected(async || RedisLocks::connect_with(config.clone()).await).await
}

/// Options with an operation timeout of 500 ms and a patience of 3 s.
pub(crate) fn hasty() -> ClientOptions {
    let mut options = ClientOptions::default();
    (options.op_timeout, options.patience) = (SHORT, ms(3000));
    options
}

/// A lease that no machine's hiccup outlasts, and one that ends while a test looks.
pub(crate) fn long() -> LeaseOptions {
    LeaseOptions::new(ms(30_000))
}

pub(crate) fn short() -> LeaseOptions {
    LeaseOptions::new(ms(3000))
}

/// A lease that no hiccup outlasts either, and that is renewed while a test looks.
pub(crate) fn often() -> LeaseOptions {
    LeaseOptions::new(ms(9000)).with_renew_every(ms(500))
}

/// Is granted this lock within the time.
#[track_caller]
pub(crate) fn obtain(
    locks: &RedisLocks,
    name: impl Into<LockName>,
    within: Duration,
) -> BoxFuture<'static, MutexGuard> {
    let mutex = locks.mutex(name.into());
    let caller = std::panic::Location::caller();
    Box::pin(async move {
        let began = Instant::now();
        // Trouble may just have ended: what counts is that the same client gets the lock in the end.
        loop {
            match mutex.try_lock_for(within.saturating_sub(began.elapsed())).await {
                Ok(Some(held)) => return held,
                outcome => assert!(began.elapsed() < within, "{caller}: no lock within {within:?}: {outcome:?}"),
            }
            tokio::time::sleep(ms(20)).await;
        }
    })
}

/// The error is of one of these kinds, and names lock, server, phase and backend.
#[track_caller]
pub(crate) fn refused<T: Debug>(
    outcome: Result<T, Error>,
    kinds: &[ErrorKind],
    phases: &[Phase],
    name: &str,
    server: &str,
) -> Error {
    let error = outcome.expect_err("it was refused");
    assert!(kinds.contains(&error.kind()), "not one of {kinds:?}: {error:?}");
    assert!(phases.contains(&error.phase()), "not one of {phases:?}: {error:?}");
    assert_eq!(error.name(), Some(name), "{error:?}");
    assert_eq!(error.backend(), Some("redis"), "{error:?}");
    assert!(everything_of(&error)[0].contains(server), "the message does not name the server {server}: {error:?}");
    assert_eq!(error.is_definite(), ![ErrorKind::Indeterminate, ErrorKind::Protocol].contains(&error.kind()));
    error
}

/// The texts that an error can be made to say: its message first, its causes, and all of it for developers.
pub(crate) fn everything_of(error: &Error) -> Vec<String> {
    let mut said = vec![error.to_string(), format!("{error:?}"), format!("{error:#?}")];
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        said.extend([error.to_string(), format!("{error:?}"), format!("{error:#?}")]);
        cause = error.source();
    }
    said
}
