//! A server's own account of itself, asked with words of four letters.

use std::io;
use std::time::Duration;

use lock_testkit::HarnessError;
use lock_testkit::ms;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{ZooKeeperServer, address_in};
use crate::until::promptly;

/// After this time, in milliseconds, a server is asked again: one that is about to start may take a question and never
/// answer it.
const SOON: u64 = 250;

/// A server's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The server is alone.
    Standalone,
    /// The server leads an ensemble.
    Leader,
    /// The server follows the leader.
    Follower,
}

impl ZooKeeperServer {
    /// Asks with a word of four letters, such as `mntr`, `cons`, `dump`, `wchp`, and returns the answer.
    ///
    /// # Errors
    /// If the server does not answer within 10 s, or an existing deployment does not allow the word.
    pub async fn ask(&self, word: &str) -> Result<String, HarnessError> {
        self.ask_within(word, promptly()).await
    }

    async fn ask_within(&self, word: &str, time: Duration) -> Result<String, HarnessError> {
        let failed = |why: String| HarnessError::new(format!("{} to {word}: {why}", self.address()));
        let answer = tokio::time::timeout(time, exchange(self.address(), word)).await;
        let answer = answer.map_err(|_| failed("no answer".to_owned()))?.map_err(|error| failed(error.to_string()))?;
        if answer.contains("not in the whitelist") {
            return Err(failed(answer));
        }
        Ok(answer)
    }

    /// Returns the server's part.
    ///
    /// # Errors
    /// If it has none yet, because there is no quorum, and as [`ask`](ZooKeeperServer::ask).
    pub async fn mode(&self) -> Result<Mode, HarnessError> {
        self.mode_in(&self.ask("srvr").await?)
    }

    /// Returns its [`mode`](ZooKeeperServer::mode), for somebody who asks again. Clients under test are let in then.
    pub(in crate::zookeeper) async fn serves(&self) -> Result<Mode, HarnessError> {
        let mode = self.mode_in(&self.answers().await?)?;
        // The port with TLS is opened after the plain one.
        TcpStream::connect(address_in(self.url())).await?;
        Ok(mode)
    }

    /// Any answer, for somebody who asks again.
    pub(in crate::zookeeper) async fn answers(&self) -> Result<String, HarnessError> {
        self.ask_within("srvr", ms(SOON)).await
    }

    fn mode_in(&self, srvr: &str) -> Result<Mode, HarnessError> {
        mode(srvr).ok_or_else(|| HarnessError::new(format!("{} has no part: {srvr:?}", self.address())))
    }

    /// A number out of `mntr`, such as `zk_watch_count`, `zk_ephemerals_count`, `zk_num_alive_connections` or
    /// `zk_packets_received`, in which this very question counts, and every ping.
    ///
    /// # Errors
    /// If the server knows no such number, and as [`ask`](ZooKeeperServer::ask).
    pub async fn figure(&self, name: &str) -> Result<i64, HarnessError> {
        let said = self.ask("mntr").await?;
        figure(&said, name).ok_or_else(|| HarnessError::new(format!("{} says no {name}", self.address())))
    }

    /// The ids of the sessions that have their connections to this server.
    ///
    /// # Errors
    /// As [`ask`](ZooKeeperServer::ask).
    pub async fn connected_sessions(&self) -> Result<Vec<i64>, HarnessError> {
        Ok(sessions(&self.ask("cons").await?))
    }
}

async fn exchange(address: &str, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(word.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn mode(srvr: &str) -> Option<Mode> {
    match srvr.lines().find_map(|line| line.strip_prefix("Mode: "))?.trim() {
        "standalone" => Some(Mode::Standalone),
        "leader" => Some(Mode::Leader),
        "follower" => Some(Mode::Follower),
        _ => None,
    }
}

fn figure(mntr: &str, name: &str) -> Option<i64> {
    mntr.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'))?.trim().parse().ok()
}

/// Out of lines like ` /127.0.0.1:1[1](queued=0,recved=1,sent=1,sid=0x100,lop=PING,...)`.
fn sessions(cons: &str) -> Vec<i64> {
    let ids = cons.split("sid=0x").skip(1).filter_map(|rest| rest.split([',', ')']).next());
    // An id whose first bit is set is printed without a sign.
    ids.filter_map(|id| u64::from_str_radix(id, 16).ok()).map(u64::cast_signed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_breaks_the_parsers() {
        let samples = [
            "Zxid: 0x0\nMode: follower\nNode count: 5\n",
            "zk_avg_latency\t0.5\nzk_watch_count\t12\n",
            " /127.0.0.1:1[1](queued=0,sid=0x1a,lop=NA)\n /127.0.0.1:3[1](queued=0,sid=0xffffffffffffffff)\n",
        ];
        lock_testkit::fuzz::texts("answers to four letters", &samples, |text| {
            assert!(mode(text).is_none() || text.contains("Mode: "));
            let count = figure(text, "zk_watch_count");
            assert!(count.is_none() || text.contains("zk_watch_count\t"));
            assert!(sessions(text).len() <= text.matches("sid=0x").count());
        });
    }

    #[test]
    fn answers_are_read() {
        assert_eq!(mode("Zxid: 0x0\nMode: follower\nNode count: 5\n"), Some(Mode::Follower));
        assert_eq!(mode("This ZooKeeper instance is not currently serving requests\n"), None);
        let mntr = "zk_avg_latency\t0.5\nzk_watch_count\t12\n";
        assert_eq!(figure(mntr, "zk_watch_count"), Some(12));
        assert_eq!((figure(mntr, "zk_watch"), figure(mntr, "zk_avg_latency")), (None, None));
        let cons = " /127.0.0.1:1[1](queued=0,recved=1,sent=1,sid=0x1a,lop=NA)\n /127.0.0.1:2[0](queued=0)\n\
                     /127.0.0.1:3[1](queued=0,sid=0xffffffffffffffff)\n";
        assert_eq!(sessions(cons), [0x1a, -1]);
    }
}
