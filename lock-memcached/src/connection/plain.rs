//! One connection of its own, for what has to happen in one life of the server's process.
//!
//! A CAS number means something within one such life only: after a restart they begin anew. Over the pool, a read and the
//! change that follows may meet two lives; over this connection they cannot. It also asks for `stats`, which the client
//! crate does not know. Used where it matters and is rare.

use std::collections::HashMap;
use std::io;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::address::Address;
use super::command::Item;
use crate::error::Failure;

/// A connection that is closed after its use.
#[derive(Debug)]
pub(crate) struct Plain {
    stream: BufReader<TcpStream>,
    until: BootInstant,
}

impl Plain {
    /// Opens one; everything has to be done by this instant.
    pub(crate) async fn open(address: &Address, until: BootInstant) -> Result<Self, Failure> {
        let stream =
            by(until, TcpStream::connect(address.pair())).await.map_err(|error| Failure::of_io(error, false))?;
        // Only for speed: small requests go out at once.
        let _ = stream.set_nodelay(true);
        Ok(Self { stream: BufReader::new(stream), until })
    }

    /// What a key has.
    pub(crate) async fn read(&mut self, key: &str) -> Result<Option<Item>, Failure> {
        let line = self.ask(&format!("mg {key} v c t")).await?;
        let mut words = line.split(' ');
        match words.next() {
            Some("EN") => return Ok(None),
            Some("VA") => {}
            _ => return Err(Failure::protocol("the server's answer to a read makes no sense")),
        }
        let bytes: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or_default();
        let flags: Vec<_> = words.collect();
        let value = self.block(bytes).await?;
        Ok(Some(Item { value, cas: flag(&flags, 'c').unwrap_or_default(), left: flag(&flags, 't').unwrap_or(-1) }))
    }

    /// Deletes an item that is unchanged; whether there was one.
    pub(crate) async fn delete(&mut self, key: &str, cas: u64) -> Result<bool, Failure> {
        Ok(self.ask(&format!("md {key} C{cas}")).await?.starts_with("HD"))
    }

    /// Adds one to an item that is unchanged, and has it end at this second since 1970; whether there was one.
    pub(crate) async fn add_one(&mut self, key: &str, cas: u64, ends_at: u64) -> Result<bool, Failure> {
        Ok(self.ask(&format!("ma {key} D1 C{cas} T{ends_at}")).await?.starts_with("HD"))
    }

    /// What the server counts, or with `" settings"` how it is set up.
    pub(crate) async fn stats(&mut self, of: &str) -> Result<HashMap<String, String>, Failure> {
        let mut stats = HashMap::new();
        let mut line = self.ask(&format!("stats{of}")).await?;
        while line != "END" {
            let pair = line.strip_prefix("STAT ").and_then(|pair| pair.split_once(' '));
            let (name, value) = pair.ok_or_else(|| Failure::protocol("the server's answer to stats makes no sense"))?;
            stats.insert(name.to_owned(), value.to_owned());
            line = self.line().await?;
        }
        Ok(stats)
    }

    async fn ask(&mut self, command: &str) -> Result<String, Failure> {
        let sent = by(self.until, self.stream.get_mut().write_all(format!("{command}\r\n").as_bytes())).await;
        sent.map_err(|error| Failure::of_io(error, true))?;
        self.line().await
    }

    async fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        let read = by(self.until, self.stream.read_line(&mut line)).await;
        match read {
            Ok(0) => Err(Failure::of_io(io::ErrorKind::UnexpectedEof.into(), true)),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(Failure::of_io(error, true)),
        }
    }

    async fn block(&mut self, bytes: usize) -> Result<Vec<u8>, Failure> {
        let mut block = vec![0; bytes + 2];
        by(self.until, self.stream.read_exact(&mut block)).await.map_err(|error| Failure::of_io(error, true))?;
        block.truncate(bytes);
        Ok(block)
    }
}

fn flag<T: std::str::FromStr>(flags: &[&str], name: char) -> Option<T> {
    flags.iter().find_map(|flag| flag.strip_prefix(name)?.parse().ok())
}

async fn by<T>(until: BootInstant, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::select! {
        biased;
        outcome = step => outcome,
        () = SystemClock.sleep_until(until) => Err(io::ErrorKind::TimedOut.into()),
    }
}
