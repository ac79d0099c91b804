//! The few commands that locks are made of, and what the server may answer.
//!
//! A key is taken by `ma` (arithmetic) and not by `ms … ME` (add): when memory is short, `ms` deletes the item that it finds
//! in its place, and since 1.6.27 it takes its CAS number before it takes the key. `ma` does neither. The CAS number that
//! it is to compare matches nothing, so that an item that is there is never changed, and one that is not is made.

use memcache::exp::{
    Arithmetic, ArithmeticResult, Delete, Error, Get, GetResult, Meta, MutationStatus, Op, OpResult, Set,
};

use crate::error::Failure;
use crate::keys::Key;
use crate::nonce::Nonce;

/// No item has this CAS number.
const NONE: u64 = i64::MAX.unsigned_abs();

/// A command.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// Takes a key if it is free. [`Answer::Done`] or [`Answer::Other`].
    Claim { key: Key, value: u64, seconds: u32 },
    /// Gives an item that is unchanged more time. [`Answer::Done`], [`Answer::Other`] or [`Answer::Missing`].
    Renew { key: Key, cas: u64, seconds: u32 },
    /// Turns an item that is unchanged into another one's. As `Renew`.
    HandOver { key: Key, cas: u64, from: Nonce, to: Nonce, seconds: u32 },
    /// Deletes an item that is unchanged. As `Renew`.
    Release { key: Key, cas: u64 },
    /// What a key has. [`Answer::Item`] or [`Answer::Missing`].
    Read { key: Key },
    /// Whether there is such a key. [`Answer::Item`], without its value, or [`Answer::Missing`].
    Look { key: Key },
    /// Gives an item more time, whosever it is; only for what no lock depends on. As `Look`.
    Keep { key: Key, seconds: u32 },
    /// Stores a text; only for what no lock depends on. [`Answer::Done`].
    Note { key: Key, text: String, seconds: u32 },
    /// Deletes a text. [`Answer::Done`] or [`Answer::Missing`].
    Forget { key: Key },
}

/// What the server answers.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It was done. The item now has this CAS number; 0 where that has none.
    Done(u64),
    /// There is such an item.
    Item(Item),
    /// There is none.
    Missing,
    /// There is another one.
    Other,
    /// Nothing that says how it is, and why.
    Failed(Failure),
}

/// An item.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) value: Vec<u8>,
    pub(crate) cas: u64,
    /// For how many seconds it lives on, without end below zero.
    pub(crate) left: i64,
}

impl Command {
    pub(super) fn operation(self) -> Op {
        match self {
            Self::Claim { key, value, seconds } => arithmetic(&key, NONE).delta(0).initial(value, seconds).into(),
            Self::Renew { key, cas, seconds } => arithmetic(&key, cas).delta(0).ttl_raw(seconds).into(),
            Self::HandOver { key, cas, from, to, seconds } => {
                let delta = to.number().wrapping_sub(from.number());
                arithmetic(&key, cas).delta(delta).ttl_raw(seconds).into()
            }
            Self::Release { key, cas } => Delete::new(key.as_bytes()).compare_cas(cas).into(),
            Self::Read { key } => Get::new(key.as_bytes()).meta(Meta::NONE.cas().ttl()).into(),
            Self::Look { key } => Get::new(key.as_bytes()).meta(Meta::NONE.cas().ttl()).without_value().into(),
            Self::Keep { key, seconds } => Get::new(key.as_bytes()).touch_raw(seconds).without_value().into(),
            Self::Note { key, text, seconds } => Set::new(key.as_bytes(), text).ttl_raw(seconds).into(),
            Self::Forget { key } => Delete::new(key.as_bytes()).into(),
        }
    }
}

fn arithmetic(key: &Key, cas: u64) -> Arithmetic {
    Arithmetic::new(key.as_bytes()).compare_cas(cas).return_cas()
}

impl Answer {
    pub(super) fn of(result: Result<OpResult, Error>) -> Self {
        match result {
            Ok(OpResult::Get(item)) => Self::got(item),
            Ok(OpResult::Mutation(result)) => Self::changed(result.status, result.cas),
            Ok(OpResult::Arithmetic(ArithmeticResult { status, item, .. })) => Self::changed(status, item.cas),
            Ok(_) => Self::Failed(Failure::protocol("the client crate answered something new")),
            // `ma` says so of an item without any text, whoever stored that.
            Err(error) => match Failure::of(error) {
                failure if failure.is_non_numeric() => Self::Other,
                failure => Self::Failed(failure),
            },
        }
    }

    /// To commands of one pipeline, in order.
    pub(super) fn of_all(results: Vec<Result<OpResult, Error>>) -> Vec<Self> {
        let mut broken = false;
        let answers = results.into_iter().map(|result| match result {
            Err(error) if broken => Self::Failed(Failure::unread(error)),
            result => {
                broken = result.is_err();
                Self::of(result)
            }
        });
        answers.collect()
    }

    fn got(found: GetResult) -> Self {
        if !found.hit() {
            return Self::Missing;
        }
        let (cas, left) = (found.item.cas.unwrap_or_default(), found.item.ttl.unwrap_or(-1));
        Self::Item(Item { value: found.value.unwrap_or_default(), cas, left })
    }

    fn changed(status: MutationStatus, cas: Option<u64>) -> Self {
        match status {
            MutationStatus::Applied => Self::Done(cas.unwrap_or_default()),
            MutationStatus::NotFound => Self::Missing,
            _ => Self::Other,
        }
    }

    /// Why it says nothing, if it does not.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// The item, if there is one.
    pub(crate) fn item(self) -> Result<Option<Item>, Failure> {
        match self {
            Self::Item(item) => Ok(Some(item)),
            Self::Missing => Ok(None),
            Self::Failed(failure) => Err(failure),
            Self::Done(_) | Self::Other => Err(Failure::protocol("a read was answered as if it were a write")),
        }
    }

    /// Whether there is such an item.
    pub(crate) fn is_there(&self) -> Result<bool, Failure> {
        match self {
            Self::Item(_) => Ok(true),
            Self::Missing => Ok(false),
            Self::Failed(failure) => Err(failure.clone()),
            Self::Done(_) | Self::Other => Err(Failure::protocol("a read was answered as if it were a write")),
        }
    }
}
