//! For each check a history that it passes, and one beside it that it rejects, for this one reason.

mod exclusion;
mod fencing;
mod groups;
mod loss;
mod order;
mod progress;
mod recipes;
mod release;
mod theft;

use super::sketch::{Sketch, of_kind};
use crate::Check;
use crate::history::event::{Ask, Granted, Kind};

const MS: u64 = 1_000_000;
const NONE: [Check; 0] = [];

fn permits(owner: &str, permits: u32) -> Ask {
    Ask { permits, limit: 3, ..of_kind(Kind::Sem, owner) }
}

fn named(name: &str, granted: Granted) -> Granted {
    Granted { grant: Some(name.into()), ..granted }
}

/// The history of the one value passes; that of the other is rejected, for this one reason.
#[track_caller]
fn tells_apart<T>(check: Check, good: T, bad: T, history: impl Fn(T) -> Sketch) {
    assert_eq!(history(good).rejections(), NONE);
    assert_eq!(history(bad).rejections(), [check]);
}
