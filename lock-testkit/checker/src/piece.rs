//! A part of a hold.

use super::mark::Mark;
use crate::history::event::Kind;

/// A part of a hold, in which it was of one kind and size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) claim: usize,
    pub(super) from: Mark,
    pub(super) to: Mark,
    pub(super) kind: Kind,
    pub(super) permits: u32,
}
