//! The error of an operation that too few servers have answered: it names each of them and its reason.

use lock_core::{Error, ErrorKind, Phase};

use super::NAME;
use super::tally::majority;

/// Of so many servers, too many have not answered, for these reasons.
pub(super) fn too_few(phase: Phase, servers: usize, reasons: Vec<Error>) -> Error {
    let mut what = format!("{} of {servers} servers gave no answer, {} have to", reasons.len(), majority(servers));
    for reason in &reasons {
        what.push_str("; ");
        what.push_str(&reason.to_string());
    }
    let error = Error::new(kind(&reasons), phase, what).with_backend(NAME);
    match reasons.into_iter().next() {
        Some(first) => error.with_source(first),
        None => error,
    }
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
            let told = format!("{} of 5 servers gave no answer, 3 have to", kinds.len());
            assert!(error.to_string().contains(&told), "{error}");
            error.kind()
        };
        use ErrorKind::{Denied, Indeterminate, Protocol, Unavailable};
        assert_eq!(kind(&[Protocol; 3]), Protocol);
        assert_eq!(kind(&[Protocol, Denied, Denied]), Unavailable);
        assert_eq!(kind(&[Denied, Indeterminate, Denied]), Indeterminate);
        assert_eq!(kind(&[]), Unavailable);
    }
}
