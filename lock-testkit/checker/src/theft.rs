//! Grants that were taken away behind their holders' backs, and for how long those may go on believing.

use std::collections::HashMap;

use super::mark::Mark;
use super::piece::Piece;
use crate::history::event::{self, Text};

/// All thefts of a history, by the names of the grants.
#[derive(Debug, Default)]
pub(super) struct Thefts<'h>(HashMap<&'h Text, Vec<(u64, Mark)>>);

impl<'h> Thefts<'h> {
    pub(super) fn note(&mut self, at: Mark, theft: &'h event::Theft) {
        for grant in &theft.grants {
            self.0.entry(grant).or_default().push((theft.after, at));
        }
    }

    /// Returns the thefts of the grant of this name, whose lease lasts for so long.
    pub(super) fn of(&self, grant: Option<&Text>, lease: u64) -> impl Iterator<Item = Theft> {
        let thefts = grant.and_then(|grant| self.0.get(grant)).map_or(&[][..], Vec::as_slice);
        thefts.iter().map(move |(after, done)| Theft { after: *after, done: *done, due: done.t.saturating_add(lease) })
    }
}

/// The theft of a grant from one holder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Theft {
    /// Not before this instant.
    pub(super) after: u64,
    /// By then it was done.
    pub(super) done: Mark,
    /// The end of the time in which the holder may not know it: its lease, which nothing can have confirmed since.
    pub(super) due: u64,
}

impl Theft {
    /// Returns what is left of a certain hold: nothing of the time in which its holder may not have known.
    pub(super) fn spare(self, piece: Piece) -> impl Iterator<Item = Piece> {
        let Self { after, done, due } = self;
        let before = (piece.from.t < after || piece.to.t <= after).then(|| {
            let end = Mark { t: after, ..done };
            Piece { to: if piece.to.t <= after { piece.to } else { end }, ..piece }
        });
        let later = (piece.to.t > due || piece.from.t >= due).then(|| {
            let begin = Mark { t: due, ..done };
            Piece { from: if piece.from.t >= due { piece.from } else { begin }, ..piece }
        });
        before.into_iter().chain(later)
    }
}
