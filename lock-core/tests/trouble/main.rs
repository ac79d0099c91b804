//! What the handles promise when the server is silent, loses answers, or repeats requests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test ends it")]

mod close;
mod fenced;
mod lab;
mod late;
mod multi;
mod permits;
mod reentrant;
mod slow;
