//! The baselines: what the client crate and the server can do without us, and what the server counted.

use redis::aio::MultiplexedConnection;
use redis::{Script, cmd};

use crate::{Bench, Outcome};

/// `GET`-compare-`DEL`, the release of every `SET NX PX` lock.
pub(crate) const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// A connection as we make it for ourselves; without Nagle's algorithm, as the client crate does by itself from 2.0 on.
pub(crate) async fn connection(bench: &Bench) -> Outcome<MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new()
        .set_response_timeout(Some(std::time::Duration::from_secs(2)))
        .set_pipeline_buffer_size(1024);
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let info = redis::IntoConnectionInfo::into_connection_info(&*bench.url)?.set_tcp_settings(tcp);
    let client = redis::Client::open(info)?;
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

/// `SET NX PX` and `EVALSHA` of a compare-and-delete: the least that any lock on Redis does.
pub(crate) async fn pair(connection: &mut MultiplexedConnection, digest: &str, key: &str, token: &str) -> Outcome {
    let mut set = cmd("SET");
    set.arg(key).arg(token).arg("NX").arg("PX").arg(10_000);
    let _: Option<String> = set.query_async(connection).await?;
    let mut evalsha = cmd("EVALSHA");
    evalsha.arg(digest).arg(1).arg(key).arg(token);
    let _: i64 = evalsha.query_async(connection).await?;
    Ok(())
}

/// Two scripts that do nothing, with keys, arguments and replies as long as ours.
pub(crate) async fn two_scripts(
    connection: &mut MultiplexedConnection,
    digest: &str,
    key: &str,
    token: &str,
) -> Outcome {
    let holder = "0123456789abcdef:{\"id\":\"00000000000000000000000000000000\",\"host\":\"localhost\",\"pid\":12345}:";
    let mut take = cmd("EVALSHA");
    take.arg(digest).arg(3).arg(key).arg([key, ":q"].concat()).arg("bench:tokens");
    take.arg([token, ":", holder].concat()).arg("10000");
    let _: String = take.query_async(connection).await?;
    let mut give = cmd("EVALSHA");
    give.arg(digest).arg(1).arg(key).arg(token);
    let _: String = give.query_async(connection).await?;
    Ok(())
}

/// Loads a script and gives its digest.
pub(crate) async fn load(connection: &mut MultiplexedConnection, code: &str) -> Outcome<String> {
    let _: String = cmd("SCRIPT").arg("LOAD").arg(code).query_async(connection).await?;
    Ok(Script::new(code).get_hash().to_owned())
}

/// The number of commands that clients have sent so far, those inside scripts not counted, and this question not either.
pub(crate) async fn client_commands(connection: &mut MultiplexedConnection) -> Outcome<u64> {
    let info: String = cmd("INFO").arg("commandstats").query_async(connection).await?;
    let mut calls = 0;
    for line in info.lines() {
        // What clients send in these measurements; the rest is called by scripts.
        let sent = ["cmdstat_evalsha:", "cmdstat_eval:", "cmdstat_blpop:", "cmdstat_rpush:", "cmdstat_ping:"];
        if sent.iter().any(|name| line.starts_with(name)) {
            let count = line.split("calls=").nth(1).and_then(|rest| rest.split(',').next());
            calls += count.ok_or("no calls in commandstats")?.parse::<u64>()?;
        }
    }
    Ok(calls)
}

/// The server's process id.
pub(crate) async fn server_pid(connection: &mut MultiplexedConnection) -> Outcome<u32> {
    let info: String = cmd("INFO").arg("server").query_async(connection).await?;
    let line = info.lines().find_map(|line| line.strip_prefix("process_id:")).ok_or("no process_id")?;
    Ok(line.trim().parse()?)
}
