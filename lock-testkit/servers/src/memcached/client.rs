//! As much of memcached's text protocol as ground truth and foreign clients need.
//!
//! Wire format: <https://github.com/memcached/memcached/blob/master/doc/protocol.txt>.

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Duration;

use lock_testkit::HarnessError;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::items::Item;

/// The time that one command may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client that opens a connection for every command: it can live in any runtime.
#[derive(Debug, Clone)]
pub struct Memcached {
    address: String,
}

impl Memcached {
    /// A client of the server at `host:port`. No traffic yet.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into() }
    }

    /// Sends one command, which may carry a block of data after its line, and answers the first line of the reply.
    ///
    /// # Errors
    /// If there is no reply, or the server refuses the command.
    pub async fn command(&self, command: &str) -> Result<String, HarnessError> {
        self.within(async {
            let mut connection = Connection::open(&self.address, command).await?;
            connection.line().await
        })
        .await
    }

    /// The value of a key, in bytes; `None` if there is no such key.
    ///
    /// # Errors
    /// As [`command`](Memcached::command).
    pub async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, HarnessError> {
        Ok(self.gets(key).await?.map(|(value, _)| value))
    }

    /// The value of a key, and the number by which [`cas`](Memcached::cas) finds it unchanged.
    ///
    /// # Errors
    /// As [`command`](Memcached::command).
    pub async fn gets(&self, key: &str) -> Result<Option<(Vec<u8>, u64)>, HarnessError> {
        self.within(async {
            let mut connection = Connection::open(&self.address, &format!("gets {key}")).await?;
            let line = connection.line().await?;
            if line == "END" {
                return Ok(None);
            }
            let mut words = line.split(' ').skip(3);
            let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
            let (Some(bytes), Some(unique)) = (number(words.next()), number(words.next())) else {
                return Err(HarnessError::new(format!("gets {key}: {line:?}")));
            };
            Ok(Some((connection.block(usize::try_from(bytes)?).await?, unique)))
        })
        .await
    }

    /// Stores a value if the key is free, as other libraries take a lock; whether it was.
    ///
    /// # Errors
    /// As [`command`](Memcached::command).
    pub async fn add(&self, key: &str, value: &str, seconds: u64) -> Result<bool, HarnessError> {
        let reply = self.command(&format!("add {key} 0 {seconds} {}\r\n{value}", value.len())).await?;
        Ok(reply == "STORED")
    }

    /// Replaces the value, or ends the key at once with `seconds` below zero, if it is unchanged since
    /// [`gets`](Memcached::gets); whether it was.
    ///
    /// # Errors
    /// As [`command`](Memcached::command).
    pub async fn cas(&self, key: &str, value: &str, seconds: i64, unique: u64) -> Result<bool, HarnessError> {
        let reply = self.command(&format!("cas {key} 0 {seconds} {} {unique}\r\n{value}", value.len())).await?;
        Ok(reply == "STORED")
    }

    /// Deletes a key, whoever put it there; whether there was one.
    ///
    /// # Errors
    /// As [`command`](Memcached::command).
    pub async fn delete(&self, key: &str) -> Result<bool, HarnessError> {
        Ok(self.command(&format!("delete {key}")).await? == "DELETED")
    }

    /// Forgets every item at once.
    ///
    /// # Errors
    /// As [`command`](Memcached::command).
    pub async fn flush_all(&self) -> Result<(), HarnessError> {
        self.command("flush_all").await.map(drop)
    }

    /// Returns the server's statistics; `stats settings` with `"settings"`.
    ///
    /// # Errors
    /// As [`command`](Memcached::command).
    pub async fn stats(&self, of: &str) -> Result<HashMap<String, String>, HarnessError> {
        let lines = self.lines(format!("stats {of}").trim_end()).await?;
        let pair = |line: String| line.strip_prefix("STAT ")?.split_once(' ').map(|(n, v)| (n.into(), v.into()));
        Ok(lines.into_iter().filter_map(pair).collect())
    }

    /// Every item that has not expired.
    ///
    /// # Errors
    /// As [`command`](Memcached::command).
    pub async fn items(&self) -> Result<Vec<Item>, HarnessError> {
        // In this order: an item that is cold only afterwards has not been read twice since.
        let (mut cold, mut items) = (self.cold_items().await?, self.dump().await?);
        let dumped: HashSet<_> = items.iter().map(|item| &item.key).collect();
        cold.retain(|item| !dumped.contains(&item.key));
        for item in cold {
            // One that a flush has forgotten may still be listed.
            if self.command(&format!("me {}", item.key)).await? != "EN" {
                items.push(item);
            }
        }
        items.retain(Item::is_alive);
        Ok(items)
    }

    /// Looks once at every item that is not in use. A cold one that was read twice counts as in use until the server moves it, which
    /// takes a second on a server that was idle.
    async fn dump(&self) -> Result<Vec<Item>, HarnessError> {
        loop {
            let lines = self.lines("lru_crawler metadump all").await?;
            // One dump at a time: somebody else's is under way.
            if lines.iter().any(|line| line.starts_with("BUSY")) {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            return Ok(lines.iter().filter_map(|line| Item::parse(line)).collect());
        }
    }

    /// The items that were not used lately, those included that a dump passes over.
    async fn cold_items(&self) -> Result<Vec<Item>, HarnessError> {
        let mut classes: Vec<_> = self.stats("items").await?.into_keys().collect();
        // `items:1:number`, `items:1:age`, ...
        classes.retain(|name| name.ends_with(":number"));
        let mut items = Vec::new();
        for class in classes.iter().filter_map(|name| name.split(':').nth(1)) {
            let lines = self.lines(&format!("stats cachedump {class} 0")).await?;
            items.extend(lines.iter().filter_map(|line| Item::parse_cold(line)));
        }
        Ok(items)
    }

    /// The lines of a reply up to its end.
    async fn lines(&self, command: &str) -> Result<Vec<String>, HarnessError> {
        self.within(async {
            let mut connection = Connection::open(&self.address, command).await?;
            let mut lines = Vec::new();
            loop {
                let line = connection.line().await?;
                if line == "END" {
                    return Ok(lines);
                }
                let last = line.starts_with("BUSY");
                lines.push(line);
                if last {
                    return Ok(lines);
                }
            }
        })
        .await
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, HarnessError>>) -> Result<T, HarnessError> {
        let late = |_| HarnessError::new(format!("{}: no answer within {PATIENCE:?}", self.address));
        tokio::time::timeout(PATIENCE, work).await.map_err(late)?
    }
}

/// One connection, for one command.
struct Connection(BufReader<TcpStream>);

impl Connection {
    async fn open(address: &str, command: &str) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("{command}\r\n").as_bytes()).await?;
        Ok(Self(BufReader::new(stream)))
    }

    async fn line(&mut self) -> Result<String, HarnessError> {
        let mut line = String::new();
        if self.0.read_line(&mut line).await? == 0 {
            return Err(HarnessError::new("the server closed the connection"));
        }
        let line = line.trim_end();
        let is_error = |line: &str| {
            ["ERROR", "CLIENT_ERROR", "SERVER_ERROR"].contains(&line.split(' ').next().unwrap_or_default())
        };
        if is_error(line) {
            return Err(HarnessError::new(line));
        }
        Ok(line.to_owned())
    }

    async fn block(&mut self, bytes: usize) -> Result<Vec<u8>, HarnessError> {
        let mut block = vec![0; bytes];
        self.0.read_exact(&mut block).await?;
        Ok(block)
    }
}
