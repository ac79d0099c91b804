//! The beliefs of holders, in their own words.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use lock_redis::{FencingToken, MutexGuard};

use crate::clock::{clock, now};
use crate::record::Record;

/// The beliefs in one lock: never two at once, and never with an older token than the last.
#[derive(Debug, Clone)]
pub(crate) struct Beliefs {
    lock: &'static str,
    record: Record,
    held: Rc<RefCell<Held>>,
    /// Whether a grant has a token.
    fenced: bool,
}

#[derive(Debug, Default)]
struct Held {
    /// By the holder's name: until when it believes.
    holders: BTreeMap<String, Duration>,
    last_token: u64,
    /// The times at which the lock was taken away at the server.
    losses: Vec<Duration>,
}

impl Beliefs {
    pub(crate) fn of(lock: &'static str, record: &Record) -> Self {
        Self { lock, record: record.clone(), held: Rc::default(), fenced: true }
    }

    /// The beliefs in a lock of which no grant has a token.
    pub(crate) fn unfenced(lock: &'static str, record: &Record) -> Self {
        Self { fenced: false, ..Self::of(lock, record) }
    }

    /// A grant was handed to a caller, who believes in it from now on.
    pub(crate) fn granted(&self, who: &str, guard: &MutexGuard) {
        let token = value(guard.fencing_token());
        self.record.granted(&format!("{who} has {} with token {token} for {:?}", self.lock, guard.remaining()));
        let last = std::mem::replace(&mut self.held.borrow_mut().last_token, token);
        if self.fenced && token <= last {
            self.record.violated(format!("token {token} of {who} came after {last}"));
        }
        self.still(who, guard);
    }

    /// The holder has looked, and believes on.
    pub(crate) fn still(&self, who: &str, guard: &MutexGuard) {
        let (now, left, taken) = (now(), guard.remaining(), self.taken_since(guard.fencing_token()));
        let mut held = self.held.borrow_mut();
        held.holders.retain(|_, until| *until > now);
        if left > Duration::ZERO && taken.is_none() {
            held.holders.insert(who.to_owned(), now + left);
        }
        if held.holders.len() > 1 {
            self.record.violated(format!("several believe to hold {}: {:?}", self.lock, held.holders));
        }
    }

    /// The holder believes no longer.
    pub(crate) fn ended(&self, who: &str) {
        self.held.borrow_mut().holders.remove(who);
    }

    /// The lock was taken away at the server: nothing keeps others out any more, whatever its holder believes.
    pub(crate) fn taken(&self, now: Duration) {
        let mut held = self.held.borrow_mut();
        held.holders.clear();
        held.losses.push(now);
    }

    /// Returns when the grant of this token was taken away at the server, if it was. A token tells when it was given.
    pub(crate) fn taken_since(&self, token: Option<FencingToken>) -> Option<Duration> {
        self.held.borrow().losses.iter().copied().find(|at| clock(*at) >= value(token))
    }
}

fn value(token: Option<FencingToken>) -> u64 {
    token.map_or(0, |token| token.as_u64())
}
