//! The error of an operation that too few servers have answered: it names each of them and its reason.

use std::error::Error as _;

use lock_core::{Error, ErrorKind, Phase};

use super::NAME;
use super::ballot::majority;

/// The error when too many of so many servers have not answered, for these reasons. Its text has each reason with its causes,
/// so it has no source: the first reason would be told twice.
pub(super) fn too_few(phase: Phase, servers: usize, reasons: Vec<Error>) -> Error {
    let mut what = format!("{} of {servers} servers gave no answer, {} must answer", reasons.len(), majority(servers));
    for reason in &reasons {
        what.push_str("; ");
        what.push_str(&reason.to_string());
        let mut cause = reason.source();
        while let Some(present) = cause {
            what.push_str(": ");
            what.push_str(&present.to_string());
            cause = present.source();
        }
    }
    Error::new(kind(&reasons), phase, what).with_backend(NAME)
}

/// Unknown if anything is unknown; what is wrong with all of them, such as a password; otherwise they cannot be had.
fn kind(reasons: &[Error]) -> ErrorKind {
    let mut kinds = reasons.iter().map(Error::kind);
    if reasons.iter().any(|reason| reason.kind() == ErrorKind::Indeterminate) {
        return ErrorKind::Indeterminate;
    }
    match kinds.next() {
        Some(first) if kinds.all(|kind| kind == first) => first,
        _ => ErrorKind::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_s_reason_is_told_and_the_kind_is_what_is_common() {
        let reason = |kind, server: &str| Error::new(kind, Phase::Acquire, "why").with_server(server);
        let kind = |kinds: &[ErrorKind]| {
            let error = too_few(Phase::Acquire, 5, kinds.iter().map(|kind| reason(*kind, "there:1")).collect());
            assert_eq!(error.to_string().matches("there:1").count(), kinds.len(), "{error}");
            let told = format!("{} of 5 servers gave no answer, 3 must answer", kinds.len());
            assert!(error.to_string().contains(&told), "{error}");
            error.kind()
        };
        use ErrorKind::{Denied, Indeterminate, Protocol, Unavailable};
        assert_eq!(kind(&[Protocol; 3]), Protocol);
        assert_eq!(kind(&[Protocol, Denied, Denied]), Unavailable);
        assert_eq!(kind(&[Denied, Indeterminate, Denied]), Indeterminate);
        assert_eq!(kind(&[]), Unavailable);
    }

    #[test]
    fn every_cause_is_told_once() {
        let reason = |server: &str, cause: &'static str| {
            Error::unavailable(Phase::Acquire, "the connection failed")
                .with_server(server)
                .with_source(std::io::Error::other(cause))
        };
        let error = too_few(Phase::Acquire, 3, vec![reason("a:1", "reset"), reason("b:2", "refused")]);
        let (mut told, mut cause) = (error.to_string(), error.source());
        while let Some(present) = cause {
            told.push_str(&present.to_string());
            cause = present.source();
        }
        for once in ["a:1", "b:2", "reset", "refused"] {
            assert_eq!(told.matches(once).count(), 1, "{once}: {told}");
        }
    }
}
