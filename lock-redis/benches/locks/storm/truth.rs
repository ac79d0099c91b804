//! A server's own account of what it does.

use std::time::Duration;

use lock_testkit::HarnessError;
use lock_testkit_servers::redis::{RedisOptions, RedisServer};
use lock_testkit_servers::resp::{Resp, Value};

use crate::Outcome;

/// An operator's one connection to a server.
pub(super) struct Truth(Resp);

impl Truth {
    pub(super) fn of(server: &RedisServer) -> Outcome<Self> {
        Ok(Self(whole(server.client())?))
    }

    /// One command.
    pub(super) async fn run(&self, command: &[&str]) -> Outcome<Value> {
        whole(self.0.command(command).await)
    }

    /// A number in a section of `INFO`.
    pub(super) async fn figure(&self, section: &str, name: &str) -> Outcome<f64> {
        let info = self.run(&["INFO", section]).await?.as_text().unwrap_or_default();
        let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(found.ok_or("no such figure")?.trim().parse()?)
    }

    /// The runs of a command so far.
    pub(super) async fn calls(&self, command: &str) -> Outcome<f64> {
        let info = self.run(&["INFO", "commandstats"]).await?.as_text().unwrap_or_default();
        let of =
            |line: &str| line.strip_prefix("cmdstat_")?.strip_prefix(command)?.strip_prefix(':').map(str::to_owned);
        let calls = |line: String| line.split_once("calls=")?.1.split(',').next()?.parse().ok();
        Ok(info.lines().find_map(of).and_then(calls).unwrap_or_default())
    }

    /// The connections that clients have made so far.
    pub(super) async fn connections(&self) -> Outcome<f64> {
        self.figure("stats", "total_connections_received").await
    }

    /// The members of a queue.
    pub(super) async fn waiting(&self, lock: &str) -> Outcome<usize> {
        Ok(self.run(&["ZCARD", &format!("{lock}:q")]).await?.as_int().and_then(|n| n.try_into().ok()).unwrap_or(0))
    }

    /// Waits until a queue has so many members.
    pub(super) async fn until_waiting(&self, lock: &str, count: usize) -> Outcome {
        for _ in 0..6_000 {
            if self.waiting(lock).await? == count {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(format!("{lock} has {} waiters, not {count}", self.waiting(lock).await?).into())
    }

    /// Forgets the slow commands so far.
    pub(super) async fn watch(&self) -> Outcome {
        self.run(&["SLOWLOG", "RESET"]).await.map(drop)
    }

    /// Milliseconds of the slowest script since; 0.05 if none took longer than that.
    pub(super) async fn slowest(&self) -> Outcome<f64> {
        let mut slowest = SLOW.as_secs_f64() * 1e3;
        for entry in self.run(&["SLOWLOG", "GET", "100000"]).await?.into_parts() {
            let mut parts = entry.into_parts().into_iter().skip(2);
            let micros = parts.next().and_then(|micros| micros.as_int()).ok_or("no time in the slow log")?;
            let command = parts.next().and_then(|command| command.into_parts().first().and_then(Value::as_text));
            if command.is_some_and(|command| command.starts_with("EVAL")) {
                slowest = f64::max(slowest, micros as f64 / 1e3);
            }
        }
        Ok(slowest)
    }
}

/// The shortest time that the slow log notes.
const SLOW: Duration = Duration::from_micros(50);

/// A server of one scene's own, whose slow log is long.
pub(super) async fn server() -> Outcome<RedisServer> {
    let slow = SLOW.as_micros().to_string();
    let options = RedisOptions::new().with_directive("slowlog-log-slower-than", &slow);
    let options = options.with_directive("slowlog-max-len", "100000");
    // Some scenes have thousands of clients, with two connections each.
    Ok(RedisServer::start_with(&options.with_directive("maxclients", "15000")).await?)
}

/// The testkit's own failure is a message.
pub(super) fn whole<T>(outcome: Result<T, HarnessError>) -> Outcome<T> {
    outcome.map_err(|error| error.to_string().into())
}
