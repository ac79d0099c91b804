//! Five servers of a test's own, clients of them, and waiting with a deadline.

use std::time::Duration;

use futures_util::future::join_all;
use lock_redis::{ClientOptions, GrantId, LeaseOptions, Mutex, MutexGuard, QuorumConfig, QuorumLocks};
use lock_testkit::proxy::{Protocol, Proxy};
use lock_testkit::testing::connected;
pub(crate) use lock_testkit::testing::{PROMPTLY, about_time, eventually, installed, renewed};
use lock_testkit_servers::redis::RedisServer;
use lock_testkit_servers::resp::{Resp, Value};

/// An operation timeout that makes trouble show soon, and what a busy machine may add to an operation.
pub(crate) const SHORT: Duration = Duration::from_millis(500);
pub(crate) const SLACK: Duration = Duration::from_millis(400);

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Independent servers, each with an operator's connection to it.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) each: Vec<RedisServer>,
    operators: Vec<Resp>,
}

impl Servers {
    /// `None`, loudly, where no `redis-server` is installed.
    pub(crate) async fn start() -> Option<Self> {
        let started = join_all((0..5).map(|_| RedisServer::start_own())).await;
        let each = installed(started.into_iter().collect::<Result<Vec<_>, _>>())?;
        let operators = each.iter().map(|server| server.client().unwrap()).collect();
        Some(Self { each, operators })
    }

    /// A configuration that does not mind that the servers have only just started.
    pub(crate) fn config(&self) -> QuorumConfig {
        QuorumConfig::new(self.each.iter().map(RedisServer::url)).with_young_servers(true)
    }

    /// A new client with the default options.
    pub(crate) async fn client(&self) -> QuorumLocks {
        configured(self.config()).await
    }

    /// A new client with an operation timeout of 500 ms and a patience of 3 s.
    pub(crate) async fn hasty_client(&self) -> QuorumLocks {
        configured(self.config().with_client(hasty())).await
    }

    /// Proxies before this many servers, and a configuration of these.
    pub(crate) fn behind_proxies(&self, servers: usize) -> (Vec<Proxy>, QuorumConfig) {
        let links: Vec<_> =
            self.each[..servers].iter().map(|server| Proxy::to(server.address(), Protocol::Resp).unwrap()).collect();
        let urls = links.iter().map(|link| format!("redis://{}", link.address()));
        let config = QuorumConfig::new(urls).with_young_servers(true);
        (links, config)
    }

    /// Freezes these servers.
    pub(crate) fn stop(&self, which: &[usize]) {
        which.iter().for_each(|i| self.each[*i].stop().unwrap());
    }

    /// Lets frozen servers go on.
    pub(crate) fn cont(&self, which: &[usize]) {
        which.iter().for_each(|i| self.each[*i].cont().unwrap());
    }

    /// Kills these servers.
    pub(crate) fn kill(&self, which: &[usize]) {
        which.iter().for_each(|i| self.each[*i].kill().unwrap());
    }

    /// Starts these servers anew, without what they knew.
    pub(crate) async fn restart(&self, which: &[usize]) {
        for i in which {
            self.each[*i].restart().await.unwrap();
            // The operator's connection is of before.
            let _ = self.operators[*i].command(&["PING"]).await;
        }
    }

    /// One command of the operator at one server.
    pub(crate) async fn run(&self, server: usize, command: &[&str]) -> Value {
        self.operators[server].command(command).await.unwrap()
    }

    /// Has the servers write down what clients have them run from now on.
    pub(crate) async fn write_down(&self) {
        for i in ALL {
            for setting in [["slowlog-log-slower-than", "0"], ["slowlog-max-len", "100000"]] {
                assert!(self.run(*i, &[&["CONFIG", "SET"][..], &setting].concat()).await.is_ok());
            }
            assert!(self.run(*i, &["SLOWLOG", "RESET"]).await.is_ok());
        }
    }

    /// The log of one server: keys and arguments of this script's runs, the first one first.
    pub(crate) async fn written(&self, server: usize, script: &str) -> Vec<Vec<String>> {
        let entries = self.run(server, &["SLOWLOG", "GET", "100000"]).await.into_parts();
        let command = |entry: Value| -> Option<Vec<String>> {
            entry.into_parts().into_iter().nth(3)?.into_parts().iter().map(Value::as_text).collect()
        };
        let mut runs: Vec<_> = entries.into_iter().filter_map(command).collect();
        runs.reverse();
        let digest = async |script| self.run(server, &["SCRIPT", "LOAD", script]).await.as_text().unwrap();
        let (alone, in_batch) = (digest(script).await, digest(BATCH).await);
        // Of a long text the log has the beginning.
        let is = |run: &[String], script: &str, digest: &str| {
            let is_text = || script.starts_with(run[1].get(..100).unwrap_or(&run[1]));
            (run[0] == "EVAL" && is_text()) || (run[0] == "EVALSHA" && run[1] == digest)
        };
        let letter = if script == TAKE { 'a' } else { 'r' };
        let mut its = Vec::new();
        for run in runs.iter().filter(|run| run.len() > 3) {
            if is(run, BATCH, &in_batch) {
                its.extend(of_batch(run).into_iter().filter(|(its, _)| *its == letter).map(|(_, run)| run));
            } else if is(run, script, &alone) {
                its.push(run[3..].to_vec());
            }
        }
        its
    }

    /// The content of a lock at one server.
    pub(crate) async fn held(&self, server: usize, name: &str) -> Option<String> {
        self.run(server, &["GET", &key(name)]).await.as_text()
    }

    /// Those of these servers that have the grant.
    pub(crate) async fn holding(&self, which: &[usize], name: &str, grant: GrantId) -> Vec<usize> {
        let mut holding = Vec::new();
        for i in which {
            if self.held(*i, name).await.is_some_and(|held| held.starts_with(&grant.to_string())) {
                holding.push(*i);
            }
        }
        holding
    }

    /// Takes the lock again and again until it is on all five servers: a client connects to a majority, and to the others
    /// when it can.
    pub(crate) async fn hold_everywhere(&self, mutex: &Mutex) -> MutexGuard {
        let name = mutex.name().to_string();
        eventually("all five hold the lock", PROMPTLY, async || {
            let held = mutex.lock().await.unwrap();
            // The last two may hear of it a moment later.
            for _ in 0..20 {
                if self.holding(ALL, &name, held.grant_id()).await == ALL {
                    return Some(held);
                }
            }
            held.release().await.unwrap();
            None
        })
        .await
    }

    /// No key is left on these servers, soon.
    pub(crate) async fn have_nothing_left(&self, which: &[usize]) {
        for i in which {
            eventually(&format!("server {i} has nothing left"), ms(5000), async || {
                (self.run(*i, &["DBSIZE"]).await.as_int() == Some(0)).then_some(())
            })
            .await;
        }
    }
}

/// The runs that a batch is made of, with their letters.
fn of_batch(run: &[String]) -> Vec<(char, Vec<String>)> {
    assert!(run.len() < 32, "the log has not all of it: {run:?}");
    let (mut keys, rest) = run[3..].split_at(run[2].parse().unwrap());
    let (letters, mut args) = rest.split_first().unwrap();
    let mut runs = Vec::new();
    for letter in letters.chars() {
        let (its_keys, more_keys) = keys.split_at(if letter == 'a' { 2 } else { 3 });
        let (its_args, more_args) = args.split_at(if letter == 'a' { 6 } else { 7 });
        runs.push((letter, [its_keys, its_args].concat()));
        (keys, args) = (more_keys, more_args);
    }
    runs
}

pub(crate) const ALL: &[usize] = &[0, 1, 2, 3, 4];

/// The documented key, for names without `%` and braces.
pub(crate) fn key(name: &str) -> String {
    format!("lock:mutex:{{{name}}}")
}

pub(crate) use crate::quorum_scripts::{BATCH, GIVE, TAKE};

/// A client as configured.
pub(crate) async fn configured(config: QuorumConfig) -> QuorumLocks {
    connected(async || QuorumLocks::connect_with(config.clone()).await).await.unwrap()
}

/// Options with an operation timeout of 500 ms and a patience of 3 s.
pub(crate) fn hasty() -> ClientOptions {
    let mut options = ClientOptions::default();
    (options.op_timeout, options.patience) = (SHORT, ms(3000));
    options
}

/// A lease that no machine's hiccup outlasts.
pub(crate) fn long() -> LeaseOptions {
    LeaseOptions::new(ms(60_000))
}

/// A lease that no hiccup outlasts either, and that is renewed while a test looks.
pub(crate) fn often() -> LeaseOptions {
    LeaseOptions::new(ms(9000)).with_renew_every(ms(500))
}

/// Is granted this lock within the time.
pub(crate) async fn obtain(locks: &QuorumLocks, name: &str) -> MutexGuard {
    let mutex = locks.mutex(name).with_lease(long());
    // Trouble may just have ended: what counts is that the same client gets the lock in the end.
    eventually("the lock is granted", PROMPTLY, async || mutex.try_lock_for(ms(1000)).await.ok().flatten()).await
}
