//! Histories: what every process did with its locks and when, to be [judged](crate::check()).
//!
//! A [`Recorder`] writes one JSON object a line, on the machine's one boot-time clock, so any number of processes can share
//! one file. [`RecordedLocks`] writes down what is done with [`Locks`](lock_core::Locks). [`History`] is what was written,
//! in the order of time. The format is in `docs/histories.md`.

mod call;
pub mod event;
mod group;
mod locks;
mod reader;
pub mod recipe;
mod recorder;
mod rules;
mod text;

pub use event::{Event, What};
pub use group::{GroupWish, RecordedGroup};
pub use locks::{RecordedGuard, RecordedLocks, Wish};
pub use reader::{History, ReadError};
pub use recorder::{Recorder, now};
pub use rules::{Least, Rules};
