//! Who believes to hold a lock, as the holders themselves say.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use lock_redis::MutexGuard;

use crate::client::now;
use crate::record::Record;

/// The beliefs in one lock: never two at once, and never with an older token than the last.
#[derive(Debug, Clone)]
pub(crate) struct Beliefs {
    lock: &'static str,
    record: Record,
    held: Rc<RefCell<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    /// By the holder's name: until when it believes.
    holders: BTreeMap<String, Duration>,
    last_token: u64,
}

impl Beliefs {
    pub(crate) fn of(lock: &'static str, record: &Record) -> Self {
        Self { lock, record: record.clone(), held: Rc::default() }
    }

    /// A grant was handed to a caller, who believes in it from now on.
    pub(crate) fn granted(&self, who: &str, guard: &MutexGuard) {
        let token = guard.fencing_token().map_or(0, |token| token.as_u64());
        self.record.granted(&format!("{who} has {} with token {token} for {:?}", self.lock, guard.remaining()));
        let last = std::mem::replace(&mut self.held.borrow_mut().last_token, token);
        if token <= last {
            self.record.violated(format!("token {token} of {who} came after {last}"));
        }
        self.still(who, guard);
    }

    /// The holder has looked, and believes on.
    pub(crate) fn still(&self, who: &str, guard: &MutexGuard) {
        let (now, left) = (now(), guard.remaining());
        let mut held = self.held.borrow_mut();
        held.holders.retain(|_, until| *until > now);
        if left > Duration::ZERO {
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
}
