//! Failures of requests, as the locks report them.
//!
//! | what happens | we say | outcome |
//! |---|---|---|
//! | the name cannot be resolved, the connection is refused or not free in time, no time is left to send, nothing was sent in full | `Unavailable` | definite |
//! | `SERVER_ERROR` (no memory) | `Unavailable` | definite: refused |
//! | `CLIENT_ERROR`, `ERROR` | `Protocol` | refused, but `Protocol` is never reported as definite |
//! | a key or value of ours that holds something else | `Protocol` | nothing was changed, but `Protocol` is never reported as definite |
//! | a server without CAS numbers, or one that evicts where that is refused | `Unsupported` | definite |
//! | clients of one prefix that were set up differently, a command that cannot be put into words | `InvalidArgument` | definite |
//! | sent, not answered | `Indeterminate`; `Unavailable` if it only reads | may have been carried out |
//! | an answer that makes no sense | `Protocol` | may have been carried out |

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;

use lock_core::{Error, ErrorKind, Phase};
use memcache::exp::Error as ClientError;

use crate::address::Address;

const NO_ANSWER: &str = "no answer came to what was sent";

/// A request that failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    kind: ErrorKind,
    /// Whether the server may have carried the request out.
    pub(crate) is_unknown: bool,
    what: Cow<'static, str>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Failure {
    /// A reply that refuses a command. The server goes on with what follows.
    ///
    /// # Errors
    /// If it is no such reply.
    pub(crate) fn refused(error: ClientError) -> io::Result<Self> {
        let (kind, what) = match &error {
            ClientError::Server(_) => (ErrorKind::Unavailable, "the server cannot serve now"),
            ClientError::Rejected(_) => (ErrorKind::Protocol, "the server refused the request"),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        Ok(Self { kind, is_unknown: false, what: what.into(), source: Some(Arc::new(error)) })
    }

    /// The failure of several requests at once: the first one whose outcome is unknown, or else this one.
    pub(crate) fn beside(self, earlier: Option<Self>) -> Self {
        earlier.filter(|earlier| earlier.is_unknown).unwrap_or(self)
    }

    /// The failure of a request of which a part was carried out: its outcome is not known as a whole.
    pub(crate) fn partly_done(self) -> Self {
        Self { kind: ErrorKind::Indeterminate, is_unknown: true, ..self }
    }

    /// A command that cannot be put into words: nothing was sent.
    pub(crate) fn unsendable(error: ClientError) -> Self {
        let what = "the request is not possible";
        Self { kind: ErrorKind::InvalidArgument, is_unknown: false, what: what.into(), source: Some(Arc::new(error)) }
    }

    /// A connection's failure. `changes` says whether something may have been changed: it was sent, and changes something.
    pub(crate) fn of_io(error: io::Error, changes: bool) -> Self {
        Self::of_shared(&Arc::new(error), changes)
    }

    /// Makes one of an error that several commands have in common.
    pub(crate) fn of_shared(error: &Arc<io::Error>, changes: bool) -> Self {
        let (kind, what) = match error.kind() {
            io::ErrorKind::InvalidData => (ErrorKind::Protocol, "the server's answer makes no sense"),
            _ if changes => (ErrorKind::Indeterminate, NO_ANSWER),
            io::ErrorKind::TimedOut => (ErrorKind::Unavailable, "the server does not answer"),
            io::ErrorKind::ConnectionRefused => (ErrorKind::Unavailable, "the server refuses the connection"),
            _ => (ErrorKind::Unavailable, "the server cannot be reached"),
        };
        Self { kind, is_unknown: changes, what: what.into(), source: Some(error.clone()) }
    }

    /// The server's name leads nowhere.
    pub(crate) fn unresolved(error: &Arc<io::Error>) -> Self {
        Self { what: "the server's name cannot be resolved".into(), ..Self::of_shared(error, false) }
    }

    /// Every connection is in use for others.
    pub(crate) fn crowded() -> Self {
        let what = "no connection was free in time: all of them wait for the server";
        Self { kind: ErrorKind::Unavailable, is_unknown: false, what: what.into(), source: None }
    }

    /// A request for which there was no connection; nothing was sent.
    pub(crate) fn unconnected() -> Self {
        let what = "no connection to the server was ready in time";
        Self { kind: ErrorKind::Unavailable, is_unknown: false, what: what.into(), source: None }
    }

    /// A request that has no time left; nothing was sent.
    pub(crate) fn late() -> Self {
        let what = "no time was left to send the request";
        Self { kind: ErrorKind::Unavailable, is_unknown: false, what: what.into(), source: None }
    }

    /// A request that has to wait for an earlier one, whose answer has not come in time.
    pub(crate) fn unanswered() -> Self {
        Self { kind: ErrorKind::Indeterminate, is_unknown: true, what: NO_ANSWER.into(), source: None }
    }

    /// An answer that makes no sense.
    pub(crate) fn senseless() -> Self {
        Self::of_io(io::ErrorKind::InvalidData.into(), true)
    }

    /// A state of things that makes no sense.
    pub(crate) fn protocol(what: &'static str) -> Self {
        Self { kind: ErrorKind::Protocol, is_unknown: true, what: what.into(), source: None }
    }

    /// An item that was there, and another one, each time: others of this client change it all the time, or it is being released.
    pub(crate) fn restless() -> Self {
        Self::protocol("the item changes all the time")
    }

    /// Others change all the time what was to be changed; this request has changed nothing.
    pub(crate) fn busy(what: &'static str) -> Self {
        Self { kind: ErrorKind::Unavailable, is_unknown: false, what: what.into(), source: None }
    }

    /// Something that is not ours in a place of ours; nothing was changed.
    pub(crate) fn foreign(what: &'static str) -> Self {
        Self { kind: ErrorKind::Protocol, is_unknown: false, what: what.into(), source: None }
    }

    /// A server that gives its items no CAS numbers, so that nobody could be told from anybody.
    pub(crate) fn without_cas() -> Self {
        let what = "the server gives no CAS numbers (it runs with -C), so it cannot tell whose a lock is";
        Self { kind: ErrorKind::Unsupported, is_unknown: false, what: what.into(), source: None }
    }

    /// A server that may lose a lock, for a client that wants none.
    pub(crate) fn evicting(what: &'static str) -> Self {
        Self { kind: ErrorKind::Unsupported, is_unknown: false, what: what.into(), source: None }
    }

    /// Clients that were set up differently.
    pub(crate) fn disagreement(what: String) -> Self {
        Self { kind: ErrorKind::InvalidArgument, is_unknown: false, what: what.into(), source: None }
    }

    /// Whether a number was to be read out of an item that has none.
    pub(crate) fn is_non_numeric(&self) -> bool {
        let text = self.source.as_ref().map(ToString::to_string).unwrap_or_default();
        self.kind == ErrorKind::Protocol && !self.is_unknown && text.contains("non-numeric")
    }

    pub(crate) fn into_error(self, phase: Phase, server: &Address) -> Error {
        let error = Error::new(self.kind, phase, self.what)
            .with_backend(crate::guarantees::NAME)
            .with_server(server.to_string());
        match self.source {
            Some(source) => error.with_source(Shared(source)),
            None => error,
        }
    }
}

/// A cause that several requests of one batch have in common.
#[derive(Debug)]
struct Shared(Arc<dyn std::error::Error + Send + Sync>);

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Shared {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_apart_from_an_unknown_outcome() {
        let full = Failure::refused(ClientError::Server("out of memory".to_owned())).unwrap();
        assert_eq!((full.kind, full.is_unknown), (ErrorKind::Unavailable, false));
        let refused = Failure::refused(ClientError::Rejected("invalid flag".to_owned())).unwrap();
        assert_eq!((refused.kind, refused.is_unknown), (ErrorKind::Protocol, false));
        assert!(Failure::refused(ClientError::Protocol("what?".to_owned())).is_err());
        let timed_out = || io::Error::from(io::ErrorKind::TimedOut);
        let unknown = Failure::of_io(timed_out(), true);
        assert_eq!((unknown.kind, unknown.is_unknown), (ErrorKind::Indeterminate, true));
        let unsent = Failure::of_io(timed_out(), false);
        assert_eq!((unsent.kind, unsent.is_unknown), (ErrorKind::Unavailable, false));
    }

    #[test]
    fn an_item_without_a_number_is_known_by_what_the_server_says() {
        let refused = |text: &str| Failure::refused(ClientError::Rejected(text.to_owned())).unwrap();
        assert!(refused("cannot increment or decrement non-numeric value").is_non_numeric());
        assert!(!refused("invalid flag").is_non_numeric());
    }
}
