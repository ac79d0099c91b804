//! Who believes to hold the lock, as the holders themselves say, and what must never be.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// What one run has seen. All instants are the simulation's.
#[derive(Debug, Clone, Default)]
pub(crate) struct Beliefs(Rc<RefCell<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// By the holder's number: until when it believes.
    holders: BTreeMap<usize, Duration>,
    last_token: u64,
    grants: usize,
    not_given_back: bool,
    events: Vec<String>,
    violation: Option<String>,
}

impl Beliefs {
    /// A grant was handed to a caller, who believes in it from `now` until then.
    pub(crate) fn granted(&self, who: usize, token: u64, now: Duration, until: Duration) {
        let mut seen = self.0.borrow_mut();
        seen.events.push(format!("{now:?} client {who} has token {token} until {until:?}"));
        seen.grants += 1;
        if token <= seen.last_token {
            let what = format!("token {token} of client {who} came after {}", seen.last_token);
            seen.violation.get_or_insert(what);
        }
        seen.last_token = token;
        if until > now {
            seen.holders.insert(who, until);
            seen.look(now);
        }
    }

    /// The holder has looked: it believes until then.
    pub(crate) fn still(&self, who: usize, now: Duration, until: Duration) {
        let mut seen = self.0.borrow_mut();
        seen.holders.insert(who, until);
        seen.look(now);
    }

    /// The holder believes no longer.
    pub(crate) fn ended(&self, who: usize) {
        self.0.borrow_mut().holders.remove(&who);
    }

    /// A client could not give everything back.
    pub(crate) fn kept(&self) {
        self.0.borrow_mut().not_given_back = true;
    }

    /// Whether every client has given everything back.
    pub(crate) fn gave_all_back(&self) -> bool {
        !self.0.borrow().not_given_back
    }

    /// Notes what happened.
    pub(crate) fn note(&self, event: String) {
        self.0.borrow_mut().events.push(event);
    }

    /// The first thing that must never be, if it was.
    pub(crate) fn violation(&self) -> Option<String> {
        self.0.borrow().violation.clone()
    }

    /// How many grants there were.
    pub(crate) fn grants(&self) -> usize {
        self.0.borrow().grants
    }

    /// Everything that happened, in order.
    pub(crate) fn events(&self) -> Vec<String> {
        self.0.borrow().events.clone()
    }
}

impl Seen {
    fn look(&mut self, now: Duration) {
        self.holders.retain(|_, until| *until > now);
        if self.holders.len() > 1 {
            let what = format!("at {now:?} several believe to hold the lock: {:?}", self.holders);
            self.violation.get_or_insert(what);
        }
    }
}
