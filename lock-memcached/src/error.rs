//! Errors of the client crate, as the locks report them.
//!
//! | the client crate says | we say | outcome |
//! |---|---|---|
//! | `Io`, `Timeout`: not sent in full, so never carried out | `Unavailable` | definite |
//! | `SERVER_ERROR` (no memory), also inside `Ambiguous` | `Unavailable` | definite: refused |
//! | `CLIENT_ERROR`, `ERROR`, also inside `Ambiguous` | `Protocol` | definite: refused |
//! | `Ambiguous` around anything else: sent, not answered | `Indeterminate` | may have been carried out |
//! | `Usage` | `InvalidArgument` | definite: nothing was sent |
//! | an answer that makes no sense | `Protocol` | may have been carried out |

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use lock_core::{Error, ErrorKind, Phase};
use memcache::exp::Error as Told;

use crate::connection::address::Address;

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
    pub(crate) fn of(error: Told) -> Self {
        let (kind, is_unknown, what) = match &error {
            Told::Ambiguous { source, .. } => match told(source) {
                Some(refusal) => refusal,
                None => (ErrorKind::Indeterminate, true, NO_ANSWER),
            },
            error => told(error).unwrap_or(match error {
                Told::Io(_) => (ErrorKind::Unavailable, false, "the server cannot be reached"),
                Told::Timeout { .. } => (ErrorKind::Unavailable, false, "the server does not answer"),
                Told::Usage(_) => (ErrorKind::InvalidArgument, false, "the request is not possible"),
                _ => (ErrorKind::Protocol, true, "the server's answer makes no sense"),
            }),
        };
        Self { kind, is_unknown, what: what.into(), source: Some(Arc::new(error)) }
    }

    /// Of a command that followed one that was refused. The client crate reads no further then, and tells of every one of
    /// them what it was told of the first: but the server goes on.
    pub(crate) fn unread(error: Told) -> Self {
        let is_refusal = match &error {
            Told::Ambiguous { source, .. } => told(source).is_some(),
            error => told(error).is_some(),
        };
        let failure = Self::of(error);
        if is_refusal {
            Self { kind: ErrorKind::Indeterminate, is_unknown: true, what: NO_ANSWER.into(), ..failure }
        } else {
            failure
        }
    }

    /// A failure of a connection of our own. `sent` says whether anything was on its way.
    pub(crate) fn of_io(error: std::io::Error, sent: bool) -> Self {
        let (kind, what) = if sent {
            (ErrorKind::Indeterminate, NO_ANSWER)
        } else {
            (ErrorKind::Unavailable, "the server cannot be reached")
        };
        Self { kind, is_unknown: sent, what: what.into(), source: Some(Arc::new(error)) }
    }

    /// An answer that makes no sense.
    pub(crate) fn protocol(what: &'static str) -> Self {
        Self { kind: ErrorKind::Protocol, is_unknown: true, what: what.into(), source: None }
    }

    /// A server that gives its items no CAS numbers, so that nobody could be told from anybody.
    pub(crate) fn without_cas() -> Self {
        let what = "the server gives no CAS numbers (it runs with -C), so it cannot tell whose a lock is";
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
        let error = Error::new(self.kind, phase, self.what).with_backend(crate::NAME).with_server(server.to_string());
        match self.source {
            Some(source) => error.with_source(Shared(source)),
            None => error,
        }
    }
}

/// What a refusal is. It is definite, although the client crate says of those of writes that their outcome is unknown.
fn told(error: &Told) -> Option<(ErrorKind, bool, &'static str)> {
    match error {
        Told::Server(_) => Some((ErrorKind::Unavailable, false, "the server cannot serve now")),
        Told::Rejected(_) => Some((ErrorKind::Protocol, false, "the server refused the request")),
        _ => None,
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

    fn ambiguous(source: Told) -> Failure {
        Failure::of(Told::Ambiguous { key: b"k".to_vec(), source: Box::new(source) })
    }

    #[test]
    fn a_refusal_is_told_apart_from_an_unknown_outcome() {
        let full = ambiguous(Told::Server("out of memory".to_owned()));
        assert_eq!((full.kind, full.is_unknown), (ErrorKind::Unavailable, false));
        let refused = ambiguous(Told::Rejected("invalid flag".to_owned()));
        assert_eq!((refused.kind, refused.is_unknown), (ErrorKind::Protocol, false));
        let unknown = ambiguous(Told::Timeout { key: b"k".to_vec() });
        assert_eq!((unknown.kind, unknown.is_unknown), (ErrorKind::Indeterminate, true));
        let unsent = Failure::of(Told::Timeout { key: b"k".to_vec() });
        assert_eq!((unsent.kind, unsent.is_unknown), (ErrorKind::Unavailable, false));
    }

    #[test]
    fn what_follows_a_refusal_may_have_been_carried_out() {
        let write = Told::Ambiguous { key: b"k".to_vec(), source: Box::new(Told::Server("out of memory".to_owned())) };
        for told in [write, Told::Rejected("invalid flag".to_owned())] {
            let after = Failure::unread(told);
            assert_eq!((after.kind, after.is_unknown), (ErrorKind::Indeterminate, true));
        }
        let unsent = Failure::unread(Told::Timeout { key: b"k".to_vec() });
        assert_eq!((unsent.kind, unsent.is_unknown), (ErrorKind::Unavailable, false));
    }

    #[test]
    fn an_item_without_a_number_is_known_by_what_the_server_says() {
        let text = "cannot increment or decrement non-numeric value";
        assert!(ambiguous(Told::Rejected(text.to_owned())).is_non_numeric());
        assert!(!ambiguous(Told::Rejected("invalid flag".to_owned())).is_non_numeric());
    }
}
