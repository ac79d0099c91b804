//! Reads a history, from one file or several, and puts it into the order of time.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::event::{Event, Step, Text, What};

/// All events of a run, in the order of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    events: Vec<Event>,
    lines: Vec<u32>,
}

/// The reason that a history cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The file itself cannot be read.
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is no event.
    Line {
        /// The file; empty for what was no file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: u32,
        /// Why.
        source: serde_json::Error,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, .. } => write!(f, "{} cannot be read", path.display()),
            Self::Line { path, line, .. } => write!(f, "{}:{line} is no event", path.display()),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match self {
            Self::Io { source, .. } => source,
            Self::Line { source, .. } => source,
        })
    }
}

impl History {
    /// Reads files of JSON lines. Empty lines are passed over.
    ///
    /// # Errors
    /// [`ReadError`] for the first file or line that cannot be read.
    pub fn read<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, ReadError> {
        let mut reader = Reader::default();
        for path in paths {
            let path = path.as_ref();
            let io = |source| ReadError::Io { path: path.to_owned(), source };
            reader.read(path, BufReader::new(File::open(path).map_err(io)?))?;
        }
        Ok(reader.finish())
    }

    /// Reads JSON lines from memory.
    ///
    /// # Errors
    /// [`ReadError::Line`] for the first line that is no event.
    pub fn parse(text: &str) -> Result<Self, ReadError> {
        let mut reader = Reader::default();
        reader.read(Path::new(""), text.as_bytes())?;
        Ok(reader.finish())
    }

    /// The events, in the order of time.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The line on which an event stands in its file, by its place in [`events`](History::events).
    #[must_use]
    pub fn line(&self, event: usize) -> u32 {
        self.lines.get(event).copied().unwrap_or_default()
    }
}

/// Events that were not read from a file; their lines are their places, from 1.
impl FromIterator<Event> for History {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        let mut reader = Reader::default();
        for (event, line) in events.into_iter().zip(1..) {
            reader.push(event, line);
        }
        reader.finish()
    }
}

#[derive(Default)]
struct Reader {
    texts: HashSet<Text>,
    events: Vec<(Event, u32)>,
}

impl Reader {
    fn read(&mut self, path: &Path, mut source: impl BufRead) -> Result<(), ReadError> {
        let mut text = String::new();
        for line in 1.. {
            text.clear();
            let read = source.read_line(&mut text);
            if read.map_err(|source| ReadError::Io { path: path.to_owned(), source })? == 0 {
                break;
            }
            if text.trim_ascii().is_empty() {
                continue;
            }
            let event = serde_json::from_str(&text);
            self.push(event.map_err(|source| ReadError::Line { path: path.to_owned(), line, source })?, line);
        }
        Ok(())
    }

    fn push(&mut self, mut event: Event, line: u32) {
        for text in texts(&mut event) {
            self.share(text);
        }
        self.events.push((event, line));
    }

    /// Keeps one copy of equal texts: a million events name a few dozen processes and locks.
    fn share(&mut self, text: &mut Text) {
        match self.texts.get(text) {
            Some(known) => *text = Arc::clone(known),
            None => {
                self.texts.insert(Arc::clone(text));
            }
        }
    }

    fn finish(mut self) -> History {
        // Stable: what one process wrote down at one instant stays in its order.
        self.events.sort_by_key(|(event, _)| event.t);
        let (events, lines) = self.events.into_iter().unzip();
        History { events, lines }
    }
}

/// The texts of an event that come again in others.
fn texts(event: &mut Event) -> Vec<&mut Text> {
    let mut texts = vec![&mut event.proc];
    match &mut event.what {
        What::Acquire(call) => {
            texts.push(&mut call.id);
            match &mut call.step {
                Step::Invoke(ask) => texts.extend([&mut ask.owner, &mut ask.res]),
                Step::Fail(failed) | Step::Info(failed) => texts.push(&mut failed.err),
                Step::Ok(_) => {}
            }
        }
        What::Renew(call) => texts.push(&mut call.id),
        What::Change(call) => texts.push(&mut call.id),
        What::Release(call) => texts.push(&mut call.id),
        What::Check(check) => texts.push(&mut check.id),
        What::Lost(lost) => texts.extend([&mut lost.id, &mut lost.reason]),
        What::Access(access) => texts.extend([&mut access.id, &mut access.target]),
        What::Theft(theft) => texts.extend(&mut theft.grants),
        What::Truth(truth) => {
            texts.push(&mut truth.res);
            texts.extend(&mut truth.holders);
        }
        What::Woken(woken) => texts.push(&mut woken.res),
        What::Slot(call) => {
            texts.push(&mut call.id);
            if let Step::Invoke(ask) = &mut call.step {
                texts.push(&mut ask.job);
            }
        }
        What::Work(work) => texts.extend([&mut work.id, &mut work.job]),
        What::Lead(lead) => texts.extend([&mut lead.election, &mut lead.leader, &mut lead.by]),
        What::Record(seen) => texts.push(&mut seen.res),
        What::Run(_) | What::Fault(_) | What::Death(_) | What::Residue(_) | What::End => {}
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::event::Call;

    const LINES: &str = r#"{"t":5,"proc":"w","op":"acquire","id":"w.1","phase":"ok","token":7,"held":true,"deadline":90}

{"t":1,"proc":"w","op":"acquire","id":"w.1","phase":"invoke","owner":"w","res":"a","kind":"mutex","ttl":100}
{"t":9,"proc":"w","op":"release","id":"w.1","phase":"fail","err":"not_held"}
{"t":9,"proc":"w","op":"end"}
"#;

    #[test]
    fn events_come_in_the_order_of_time_and_remember_their_lines() {
        let history = History::parse(LINES).unwrap();
        let times: Vec<_> = history.events().iter().map(|event| event.t).collect();
        assert_eq!(times, [1, 5, 9, 9]);
        let lines: Vec<_> = (0..4).map(|event| history.line(event)).collect();
        assert_eq!(lines, [3, 1, 4, 5]);
        let What::Acquire(Call { step: Step::Ok(granted), .. }) = &history.events()[1].what else { panic!() };
        let sample = granted.sample;
        assert_eq!((granted.token, sample.held, sample.deadline), (Some(7), Some(true), Some(90)));
    }

    #[test]
    fn what_was_written_is_read_again() {
        let history = History::parse(LINES).unwrap();
        let written: Vec<_> = history.events().iter().map(|event| serde_json::to_string(event).unwrap()).collect();
        assert_eq!(History::parse(&written.join("\n")).unwrap().events(), history.events());
    }

    #[test]
    fn an_error_names_the_line() {
        for (broken, said) in [("{\"t\":1", "EOF"), (r#"{"t":1,"proc":"w","op":"dance"}"#, "dance")] {
            let Err(ReadError::Line { line, source, .. }) = History::parse(&format!("{LINES}{broken}\n")) else {
                panic!("{broken} was read")
            };
            assert_eq!(line, 6);
            assert!(source.to_string().contains(said), "{source}");
        }
        let Err(ReadError::Io { path, .. }) = History::read(["/no/such/file"]) else { panic!("read") };
        assert_eq!(path, Path::new("/no/such/file"));
    }
}
