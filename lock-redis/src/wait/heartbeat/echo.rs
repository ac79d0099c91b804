//! Whether pushes arrive: now and then a heartbeat has the server say something on the subscription connection.
//!
//! The echo travels on another connection than the answer to its heartbeat, in a cluster by way of other nodes, and may well be
//! a moment behind it.

use std::time::Duration;

use lock_core::clock::BootInstant;

/// The time between two echoes of a client, however many locks it waits for.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest that an echo may be behind the answer to its heartbeat.
const GRACE: Duration = Duration::from_millis(500);
/// An echo that is found missing this much too late says nothing about the connection: this process stood still, and what was heard
/// meanwhile may not have been read yet.
const STOOD_STILL: Duration = Duration::from_millis(100);

/// The echo that was asked for last.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    /// The instant at which the last one was asked for.
    last: Option<BootInstant>,
    /// The one that has not been heard yet.
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    asked_at: BootInstant,
    /// The instant at which the heartbeat that asked for it was answered.
    answered_at: Option<BootInstant>,
}

impl Echo {
    /// Whether the heartbeat that is sent now is to ask for an echo.
    pub(crate) fn ask(&mut self, now: BootInstant) -> bool {
        let asks = self.pending.is_none() && self.last.is_none_or(|last| now.since(last) >= PAUSE);
        if asks {
            self.last = Some(now);
            self.pending = Some(Pending { asked_at: now, answered_at: None });
        }
        asks
    }

    /// The heartbeat that asked for it was carried out.
    pub(crate) fn answered(&mut self, now: BootInstant) {
        if let Some(pending) = &mut self.pending {
            pending.answered_at.get_or_insert(now);
        }
    }

    /// The heartbeat that asked for it may not have been carried out.
    pub(crate) fn failed(&mut self) {
        self.pending = None;
    }

    /// Whether an echo is missing, on a connection on which something was heard last at `heard_at`.
    pub(crate) fn is_missing(&mut self, now: BootInstant, heard_at: BootInstant) -> bool {
        let Some(Pending { asked_at, answered_at: Some(answered_at) }) = self.pending else { return false };
        if heard_at >= asked_at {
            self.pending = None;
            return false;
        }
        let late_by = now.since(answered_at);
        if late_by < GRACE {
            return false;
        }
        if late_by >= GRACE + STOOD_STILL {
            self.pending = Some(Pending { asked_at, answered_at: Some(now) });
            return false;
        }
        self.pending = None;
        true
    }

    /// The instant at which [`is_missing`](Echo::is_missing) is to be asked.
    pub(crate) fn next(&self) -> BootInstant {
        let answered_at = self.pending.as_ref().and_then(|pending| pending.answered_at);
        answered_at.map_or(BootInstant::FAR_FUTURE, |at| at.plus(GRACE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn an_echo_that_is_a_moment_behind_the_answer_is_not_missing() {
        let mut echo = Echo::default();
        assert!(echo.ask(at(1000)) && !echo.ask(at(1001)));
        assert!(!echo.is_missing(at(9000), at(0)), "the heartbeat was not answered");
        echo.answered(at(1010));
        assert_eq!(echo.next(), at(1510));
        assert!(!echo.is_missing(at(1509), at(999)));
        assert!(!echo.is_missing(at(1600), at(1012)), "it was heard");
        assert!(!echo.ask(at(1999)) && echo.ask(at(2000)));
    }

    #[test]
    fn an_echo_that_nobody_could_have_read_is_waited_for_once_more() {
        let mut echo = Echo::default();
        echo.ask(at(1000));
        echo.answered(at(1010));
        assert!(!echo.is_missing(at(1700), at(999)), "this process stood still");
        assert_eq!(echo.next(), at(2200));
        assert!(!echo.is_missing(at(2199), at(999)) && echo.is_missing(at(2200), at(999)));
        echo.ask(at(3000));
        echo.answered(at(3010));
        assert!(!echo.is_missing(at(4000), at(999)) && !echo.is_missing(at(4001), at(4000)), "it was heard");
        assert_eq!(echo.next(), BootInstant::FAR_FUTURE);
    }

    #[test]
    fn an_echo_that_does_not_come_is_missing_once() {
        let mut echo = Echo::default();
        echo.ask(at(1000));
        echo.answered(at(1010));
        assert!(echo.is_missing(at(1510), at(999)) && !echo.is_missing(at(1511), at(999)));
        assert!(echo.ask(at(2000)));
        echo.failed();
        assert!(!echo.is_missing(at(9000), at(0)) && echo.ask(at(9000)));
    }
}
