//! The arguments of the command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use lexopt::ValueExt;
use lexopt::prelude::{Long, Short, Value};

use super::place::Place;

/// The text of `--help`.
pub(crate) const HELP: &str = "\
Workers count together under one distributed lock; one is killed, one stalls, no update is lost

Usage: quickstart [URL] [OPTIONS]

Arguments:
  [URL]  The server, as redis://host:port or zk://host:port; without it the locks live in this process

Options:
      --workers <N>    The number of workers, each in a thread with a client of its own, 3 to 32 [default: 4]
      --processes <N>  Run this many workers as processes instead, 3 to 32; needs a server
      --rounds <N>     The number of times that each worker takes the lock, 4 to 1000 [default: 6]
      --ttl <MS>       The ms for which the lock outlives a holder that is not heard of any more, 300 to 10000
                       [default: 1000]
  -h, --help           Print help

Examples (put the arguments after `--` when you run it through cargo):
  quickstart                                        in memory, no server needed
  quickstart redis://127.0.0.1:6379                 on a Redis or Valkey server (feature redis)
  quickstart redis://127.0.0.1:6379 --processes 5   the same with real processes and a real SIGKILL
  quickstart zk://127.0.0.1:2181                    on ZooKeeper, where a dead holder blocks for 4 s at least
                                                    (feature zookeeper)

The exit code is 0 if no two workers ever held the lock at once and no update was lost.
";

/// The wishes of whoever started the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// The server; without it the locks live in this process.
    pub(crate) url: Option<String>,
    /// The number of workers.
    pub(crate) workers: u32,
    /// Whether each worker is a process of its own.
    pub(crate) in_processes: bool,
    /// The number of times that each worker takes the lock.
    pub(crate) rounds: u32,
    /// The time for which the lock outlives a holder that is not heard of any more.
    pub(crate) ttl: Duration,
    /// The number of this worker and the address of the counter, if this is the process of one worker.
    pub(crate) child: Option<(u32, SocketAddr)>,
}

/// The program that the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Run(Arguments),
    Help,
}

impl Arguments {
    /// Reads a command line, without the program's name.
    ///
    /// # Errors
    /// A text for the user, which names the argument that is wrong.
    pub(crate) fn read(command_line: impl IntoIterator<Item = OsString>) -> Result<Wish, lexopt::Error> {
        let mut parser = lexopt::Parser::from_args(command_line);
        let (mut url, mut workers, mut processes, mut rounds, mut ttl) = (None, None, None, 6, 1000);
        let (mut worker, mut resource) = (None, None);
        while let Some(argument) = parser.next()? {
            match argument {
                Short('h') | Long("help") => return Ok(Wish::Help),
                Long("workers") => workers = Some(number(&mut parser, "--workers", 3..=32)?),
                Long("processes") => processes = Some(number(&mut parser, "--processes", 3..=32)?),
                Long("rounds") => rounds = number(&mut parser, "--rounds", 4..=1000)?,
                Long("ttl") => ttl = number(&mut parser, "--ttl", 300..=10_000)?,
                // For the children of --processes.
                Long("child") => worker = Some(number(&mut parser, "--child", 1..=32)?),
                Long("resource") => resource = Some(parser.value()?.parse::<SocketAddr>()?),
                Value(value) if url.is_none() => url = Some(value.string()?),
                other => return Err(other.unexpected()),
            }
        }
        if workers.is_some() && processes.is_some() {
            return Err("--workers and --processes cannot be used together".into());
        }
        if processes.is_some() && url.is_none() {
            let what = "--processes needs a server: locks in memory are not shared between processes. \
                        Give a URL, such as redis://127.0.0.1:6379";
            return Err(what.into());
        }
        Ok(Wish::Run(Self {
            url,
            workers: processes.or(workers).unwrap_or(4),
            in_processes: processes.is_some(),
            rounds,
            ttl: Duration::from_millis(ttl),
            child: worker.zip(resource),
        }))
    }

    /// The place where the locks are.
    pub(crate) fn place(&self) -> Result<Place, String> {
        Place::of(self.url.as_deref())
    }
}

/// Reads the number that follows an option.
fn number<T>(parser: &mut lexopt::Parser, option: &str, range: RangeInclusive<T>) -> Result<T, lexopt::Error>
where
    T: FromStr<Err: Into<Box<dyn std::error::Error + Send + Sync>>> + PartialOrd + std::fmt::Display,
{
    let number = parser.value()?.parse::<T>()?;
    if range.contains(&number) {
        return Ok(number);
    }
    Err(format!("{option} takes a number from {} to {}, not {number}", range.start(), range.end()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(command_line: &str) -> Result<Wish, String> {
        Arguments::read(command_line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())
    }

    fn arguments(command_line: &str) -> Arguments {
        match read(command_line) {
            Ok(Wish::Run(arguments)) => arguments,
            other => panic!("{command_line}: {other:?}"),
        }
    }

    #[test]
    fn an_empty_command_line_runs_four_threads_in_memory() {
        let expected = Arguments {
            url: None,
            workers: 4,
            in_processes: false,
            rounds: 6,
            ttl: Duration::from_secs(1),
            child: None,
        };
        assert_eq!(arguments(""), expected);
    }

    #[test]
    fn a_server_and_its_processes_are_told_apart_from_threads() {
        let arguments = arguments("redis://127.0.0.1:6379 --processes 5 --ttl=300 --rounds 4");
        assert_eq!((arguments.url.as_deref(), arguments.workers), (Some("redis://127.0.0.1:6379"), 5));
        assert!(arguments.in_processes);
        assert_eq!((arguments.ttl, arguments.rounds), (Duration::from_millis(300), 4));
        assert!(matches!(read("--processes 3 --help"), Ok(Wish::Help)));
    }

    #[test]
    fn a_child_knows_its_number_and_where_the_counter_is() {
        let child = arguments("--child 2 --resource 127.0.0.1:80").child;
        assert_eq!(child, Some((2, "127.0.0.1:80".parse().unwrap())));
        assert_eq!(arguments("--child 2").child, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (command_line, named) in [
            ("--workers 2", "--workers takes a number from 3 to 32, not 2"),
            ("--ttl x", "x"),
            ("--rounds", "--rounds"),
            ("--nonsense", "--nonsense"),
            ("redis://a redis://b", "redis://b"),
            ("--processes 3", "--processes needs a server"),
            ("redis://a --workers 3 --processes 3", "cannot be used together"),
        ] {
            let error = read(command_line).unwrap_err();
            assert!(error.contains(named), "{command_line}: {error}");
        }
    }
}
