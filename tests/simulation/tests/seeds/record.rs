//! The record of a run, and the first thing in it that must never be.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::clock::now;
use crate::faults::{Faults, Needed};

/// The events of a run, as its hosts tell them.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    faults: Rc<Faults>,
    seen: Rc<RefCell<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    events: Vec<String>,
    grants: usize,
    not_released: bool,
    violation: Option<String>,
}

impl Record {
    pub(crate) fn of(faults: Rc<Faults>) -> Self {
        Self { faults, seen: Rc::default() }
    }

    /// Notes what happened on a host, just now.
    pub(crate) fn note(&self, event: &str) {
        self.tell(format!("{:?} {event}", now()));
    }

    /// Notes what happened.
    pub(crate) fn tell(&self, event: String) {
        self.seen.borrow_mut().events.push(event);
    }

    /// Notes a grant.
    pub(crate) fn granted(&self, event: &str) {
        self.note(event);
        self.seen.borrow_mut().grants += 1;
    }

    /// Notes what must never be.
    pub(crate) fn violated(&self, what: String) {
        self.note(&what);
        let at = now();
        self.seen.borrow_mut().violation.get_or_insert_with(|| format!("at {at:?} {what}"));
    }

    /// Notes what a client was refused, or waited for, since then: it must not be without a fault that explains it.
    pub(crate) fn suffered(&self, client: usize, since: Duration, what: &str) {
        self.suffered_without(&Needed::Majority, client, since, what);
    }

    /// Notes what a client suffered for want of these servers since then: it must not be without a fault that explains it.
    pub(crate) fn suffered_without(&self, needed: &Needed, client: usize, since: Duration, what: &str) {
        if self.faults.explain(client, since, now(), needed) {
            self.note(&format!("client {client} {what}, without {needed:?}"));
        } else {
            self.violated(format!("client {client}, whom no fault since {since:?} had kept from {needed:?}, {what}"));
        }
    }

    /// A client could not release everything.
    pub(crate) fn kept(&self) {
        self.seen.borrow_mut().not_released = true;
    }

    /// Whether every client has released everything.
    pub(crate) fn released_all(&self) -> bool {
        !self.seen.borrow().not_released
    }

    /// The first thing that must never be, if it was.
    pub(crate) fn violation(&self) -> Option<String> {
        self.seen.borrow().violation.clone()
    }

    /// Returns the number of grants.
    pub(crate) fn grants(&self) -> usize {
        self.seen.borrow().grants
    }

    /// Everything that happened, in order.
    pub(crate) fn events(&self) -> Vec<String> {
        self.seen.borrow().events.clone()
    }
}
