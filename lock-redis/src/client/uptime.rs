//! The uptime of a server.

use std::time::Duration;

use lock_core::Error;
use redis::aio::MultiplexedConnection;
use redis::cmd;

use crate::error;
use crate::error::nowhere;

/// The error of the server's whole seconds: its start and its present were both rounded off.
const ROUNDED: Duration = Duration::from_secs(1);

/// Refuses a server that may have been up for less than this.
pub(super) async fn at_least(min: Duration, connection: &mut MultiplexedConnection, server: &str) -> Result<(), Error> {
    if min.is_zero() {
        return Ok(());
    }
    let info = cmd("INFO").arg("server").query_async::<String>(connection).await;
    match uptime(&info.map_err(|e| error::of_connect(e, server))?) {
        Some(uptime) if uptime >= min.saturating_add(ROUNDED) => Ok(()),
        Some(uptime) => {
            let what =
                format!("it started {uptime:?} ago and may have forgotten locks; it must be up for {min:?} first");
            Err(nowhere(what, server))
        }
        None => Err(nowhere("it does not tell its uptime", server)),
    }
}

fn uptime(info: &str) -> Option<Duration> {
    let seconds = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"))?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uptime_is_found_among_the_rest() {
        let info = "# Server\r\nredis_version:7.0.15\r\nuptime_in_seconds:86401\r\nuptime_in_days:1\r\n";
        assert_eq!(uptime(info), Some(Duration::from_secs(86_401)));
        assert_eq!(uptime("# Server\r\n"), None);
    }

    #[test]
    fn an_uptime_from_outside_stands_in_a_line_of_its_own() {
        let samples = ["# Server\r\nredis_version:7.0.15\r\nuptime_in_seconds:86401\r\nuptime_in_days:1\r\n"];
        lock_testkit::fuzz::texts("uptimes", &samples, |info| {
            let Some(uptime) = uptime(info) else { return };
            let line = format!("uptime_in_seconds:{}", uptime.as_secs());
            assert!(super::uptime(&line) == Some(uptime) && info.contains("uptime_in_seconds:"), "{uptime:?}");
        });
    }
}
