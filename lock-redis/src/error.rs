//! Redis errors, as the locks report them.
//!
//! | the client crate says | we say | outcome |
//! |---|---|---|
//! | certificates or versions of TLS that do not fit | `Denied` | definite: nothing was sent |
//! | connection refused, could not connect, a host's name without an address | `Unavailable` | definite: nothing was sent |
//! | response timeout, broken pipe, reset, a reply that ends in its middle | `Indeterminate` | the request may have been carried out |
//! | `NOAUTH`, `WRONGPASS`, `NOPERM`, authentication failed | `Denied` | definite |
//! | `LOADING`, `BUSY`, `MASTERDOWN`, `CLUSTERDOWN`, `TRYAGAIN` | `Unavailable` | definite: refused before the first write |
//! | `READONLY`, `OOM`, `MISCONF`, `NOREPLICAS`, `max number of clients reached` | `Unavailable` | definite, likewise |
//! | `MOVED`, `ASK`, `CROSSSLOT` of a server that was not said to be of a cluster | `Unsupported` | definite |
//! | `WRONGTYPE` | `Protocol` | nothing was written, but `Protocol` is never reported as definite: the key holds foreign data |
//! | `LOCKLIMIT`, `LOCKKIND`, `LOCKRECORD` (our scripts) | `LimitMismatch`, `Protocol`, `Protocol` | nothing of this attempt was written; definite, but for `Protocol` |
//! | a URL that is none, a database that the server does not have | `InvalidArgument` | definite |
//! | anything else | `Protocol` | counts as unknown |

use std::fmt;

use lock_core::driver::log;
use lock_core::{Error, ErrorKind, Phase};
use redis::{RedisError, ServerErrorKind};

use crate::cause::Cause;

/// The fate of a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestFate {
    /// Never carried out.
    Refused,
    /// Perhaps carried out.
    Unknown,
}

/// Whether the server may have carried the request out. It has not if it says so, or if nothing was sent.
pub(crate) fn fate(error: &RedisError) -> RequestFate {
    use redis::ErrorKind::{AuthenticationFailed, Client, Extension, InvalidClientConfig, Server};
    match error.kind() {
        _ if error.is_connection_refusal() => RequestFate::Refused,
        AuthenticationFailed | Client | Extension | InvalidClientConfig | Server(_) => RequestFate::Refused,
        _ => RequestFate::Unknown,
    }
}

/// Whether the connection failed, and not what was asked for over it. A reply that is cut in its middle cannot be parsed.
pub(crate) fn is_of_connection(error: &RedisError) -> bool {
    error.is_io_error() || error.kind() == redis::ErrorKind::Parse
}

/// Whether the server does not know the script (yet).
pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The words of the server or the system.
pub(crate) fn cause(error: &RedisError) -> Cause {
    Cause::of(error, is_wrong_type(error))
}

/// Whether the key holds another type of data.
pub(crate) fn is_wrong_type(error: &RedisError) -> bool {
    code(error) == Some("WRONGTYPE")
}

/// Whether a server that refuses one command with this error refuses the others too.
pub(crate) fn is_of_any_command(error: &RedisError) -> bool {
    let codes = ["BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOAUTH", "NOPERM", "NOREPLICAS", "OOM"];
    code(error).is_some_and(|code| codes.contains(&code))
}

/// The server's code for an error. The lack of a right inside a script has none on any server, but a text of its own.
pub(crate) fn code(error: &RedisError) -> Option<&str> {
    let text = error.detail().unwrap_or_default();
    let denied = ["The user executing the script can't", "ACL failure in script"];
    if denied.iter().any(|start| text.contains(start)) {
        return Some("NOPERM");
    }
    code_within(text).or_else(|| error.code())
}

/// Finds the code of an error inside a script as Redis 6.2 tells it: within a text, behind the line, with a dash or without
/// (`… @user_script:11: WRONGTYPE …`, `… @user_script: 11: -OOM …`).
fn code_within(text: &str) -> Option<&str> {
    let (_, rest) = text.rsplit_once("@user_script")?;
    let word = rest.trim_start_matches([':', ' ', '-']).trim_start_matches(|c: char| c.is_ascii_digit());
    let word = word.trim_start_matches([':', ' ', '-']).split(' ').next()?;
    (!word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase())).then_some(word)
}

/// The error of one request.
pub(crate) fn of_request(error: RedisError, phase: Phase, server: &str) -> Error {
    let (kind, what) = match (fate(&error), classify(&error)) {
        // A connection that breaks for whatever reason takes an answer with it that may have been on its way.
        (RequestFate::Unknown, (kind, _)) if kind != ErrorKind::Indeterminate && is_of_connection(&error) => {
            (ErrorKind::Indeterminate, LOST)
        }
        (_, classified) => classified,
    };
    Error::new(kind, phase, what).with_backend(crate::guarantees::NAME).with_server(server).with_source(cause(&error))
}

/// The error of an attempt to connect: then nothing was asked for yet.
pub(crate) fn of_connect(error: RedisError, server: &str) -> Error {
    let (kind, what) = match classify(&error) {
        _ if inner(&error).is_some_and(|cause| cause.is::<Unresolved>()) => {
            (ErrorKind::Unavailable, "the host's name could not be resolved")
        }
        // A reply that ends in its middle is one of a connection that failed.
        _ if error.kind() == redis::ErrorKind::Parse && !error.to_string().contains("end of input") => {
            (ErrorKind::Protocol, "the server does not speak Redis's protocol")
        }
        (ErrorKind::Indeterminate, _) if error.is_timeout() => {
            (ErrorKind::Unavailable, "no connection could be made in time")
        }
        (ErrorKind::Indeterminate, _) => (ErrorKind::Unavailable, "the connection failed while it was made"),
        other => other,
    };
    Error::new(kind, Phase::Connect, what)
        .with_backend(crate::guarantees::NAME)
        .with_server(server)
        .with_source(cause(&error))
}

/// The error of an attempt to connect that found no place to dial.
pub(crate) fn nowhere(what: impl Into<std::borrow::Cow<'static, str>>, server: &str) -> Error {
    Error::unavailable(Phase::Connect, what).with_backend(crate::guarantees::NAME).with_server(server)
}

/// The reason why a host's name has no address.
#[derive(Debug)]
pub(crate) struct Unresolved(String);

impl Unresolved {
    /// As an error of connecting.
    pub(crate) fn of(error: &std::io::Error) -> std::io::Error {
        std::io::Error::other(Self(error.to_string()))
    }
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unresolved {}

/// The cause of an error of input or output.
fn inner(error: &RedisError) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
    type Shared = std::sync::Arc<dyn std::error::Error + Send + Sync>;
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<Shared>());
    cause.and_then(|cause| cause.downcast_ref::<std::io::Error>()).and_then(std::io::Error::get_ref)
}

const LOST: &str = "the connection was lost before the answer came";

fn classify(error: &RedisError) -> (ErrorKind, &'static str) {
    if error.is_connection_refusal() {
        return (ErrorKind::Unavailable, "the connection was refused");
    }
    if error.is_timeout() {
        return (ErrorKind::Indeterminate, "no answer within the operation timeout");
    }
    if is_of_tls(error) {
        return (ErrorKind::Denied, "the TLS handshake failed: certificates, names or versions do not match");
    }
    if is_of_connection(error) {
        return (ErrorKind::Indeterminate, LOST);
    }
    match error.kind() {
        redis::ErrorKind::AuthenticationFailed => return (ErrorKind::Denied, "the credentials were refused"),
        redis::ErrorKind::InvalidClientConfig => return (ErrorKind::InvalidArgument, "the URL or an option is wrong"),
        _ => {}
    }
    match code(error) {
        // How the client crate tells it when the first command is to choose a database.
        _ if error.detail().is_some_and(|detail| detail.starts_with("Authentication required")) => {
            (ErrorKind::Denied, "the credentials were refused")
        }
        _ if error.detail().is_some_and(|detail| detail.contains("DB index")) => {
            (ErrorKind::InvalidArgument, "the server has no such database")
        }
        // It has no code of its own.
        _ if error.detail().is_some_and(|detail| detail.starts_with("max number of clients")) => {
            (ErrorKind::Unavailable, "the server takes no more clients")
        }
        Some("NOAUTH" | "WRONGPASS") => (ErrorKind::Denied, "the credentials were refused"),
        Some("NOPERM") => (ErrorKind::Denied, "the user lacks the right to a command, key or channel"),
        Some("LOADING") => (ErrorKind::Unavailable, "the server is loading its data"),
        Some("BUSY") => (ErrorKind::Unavailable, "the server is busy with a script"),
        Some("READONLY") => (ErrorKind::Unavailable, "the server is a read-only replica"),
        Some("OOM") => (ErrorKind::Unavailable, "the server is out of memory"),
        Some("MISCONF") => (ErrorKind::Unavailable, "the server cannot persist and refuses writes"),
        Some("NOREPLICAS") => (ErrorKind::Unavailable, "the server has too few replicas to accept writes"),
        Some("MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN") => (ErrorKind::Unavailable, "the server cannot serve now"),
        Some("MOVED" | "ASK" | "CROSSSLOT") => {
            (ErrorKind::Unsupported, "the server belongs to a cluster; connect to it by redis-cluster://")
        }
        Some("WRONGTYPE") => (ErrorKind::Protocol, "the key holds another type of data"),
        Some("LOCKLIMIT") => (ErrorKind::LimitMismatch, "the permits in use were asked for with another limit"),
        Some("LOCKKIND") => (ErrorKind::Protocol, "the key is in use by another kind of lock"),
        Some("LOCKRECORD") => (ErrorKind::Protocol, "something else is in the record's place"),
        Some("NOSCRIPT") => (ErrorKind::Unavailable, "the server did not know the script, and was not told it in time"),
        _ => (ErrorKind::Protocol, "the server refused the request"),
    }
}

/// Whether the two sides could not agree on a secure connection.
#[cfg(feature = "tls")]
fn is_of_tls(error: &RedisError) -> bool {
    inner(error).is_some_and(|cause| cause.is::<tokio_rustls::rustls::Error>())
}

#[cfg(not(feature = "tls"))]
fn is_of_tls(_: &RedisError) -> bool {
    false
}

/// A reply to another request, by which the connection is known to have lost count. Told in the log as well: where the
/// request is sent again, nobody sees the error.
pub(crate) fn of_another(phase: Phase, server: &str) -> Error {
    log(|| tracing::error!(server, %phase, "a reply belongs to another request; the connection is given up"));
    let what = "the reply belongs to another request; the connection was given up";
    Error::indeterminate(phase, what).with_backend(crate::guarantees::NAME).with_server(server)
}

/// A reply that is not what its script promises.
pub(crate) fn bad_reply(phase: Phase, server: &str, what: String) -> Error {
    Error::new(ErrorKind::Protocol, phase, what).with_backend(crate::guarantees::NAME).with_server(server)
}

/// Repeats an error in this phase, for another request that the same event concerns.
pub(crate) fn repeated(error: &Error, phase: Phase) -> Error {
    let again = Error::new(error.kind(), phase, error.what().to_owned()).with_backend(crate::guarantees::NAME);
    let again = match error.server() {
        Some(server) => again.with_server(server),
        None => again,
    };
    with_cause_of(again, error)
}

/// Gives an error the cause of another one, as a text: the client crate's own cannot be copied.
pub(crate) fn with_cause_of(error: Error, other: &Error) -> Error {
    match std::error::Error::source(other) {
        Some(cause) => error.with_source(cause.to_string()),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_error_inside_a_script_is_found_whatever_the_server() {
        let told = |code: &str, text: &str| redis::make_extension_error(code.to_owned(), Some(text.to_owned()));
        for (error, expected) in [
            // 6.2
            (told("ERR", "Error running script (call to f_ab): @user_script:11: -OOM command not allowed"), "OOM"),
            (told("ERR", "Error running script (call to f_ab): @user_script:3: -READONLY You can't write"), "READONLY"),
            (
                told("ERR", "Error running script (call to f_ab): @user_script:1: WRONGTYPE Operation against"),
                "WRONGTYPE",
            ),
            (
                told(
                    "ERR",
                    "Error running script (call to f_ab): @user_script:1: @user_script: 1: -NOREPLICAS Not enough",
                ),
                "NOREPLICAS",
            ),
            (told("ERR", "Error running script (call to f_ab): @user_script:1: attempt to index a nil value"), "ERR"),
            (
                told(
                    "ERR",
                    "Error running script (call to f_ab): @user_script: 3: The user executing the script can't run this command",
                ),
                "NOPERM",
            ),
            // 7.0
            (told("OOM", "command not allowed when used memory > 'maxmemory'. script: ab, on @user_script:1."), "OOM"),
            // 8 and Valkey
            (
                told("ERR", "ACL failure in script: User a has no permissions to run the 'set' command script: ab"),
                "NOPERM",
            ),
            (told("ERR", "unknown"), "ERR"),
        ] {
            assert_eq!(code(&error), Some(expected), "{error}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_that_breaks_under_a_request_leaves_its_outcome_unknown() {
        use tokio_rustls::rustls;
        let broken = || std::io::Error::new(std::io::ErrorKind::InvalidData, rustls::Error::DecryptError).into();
        assert_eq!(of_connect(broken(), "here").kind(), ErrorKind::Denied);
        assert!(!of_request(broken(), Phase::Acquire, "here").is_definite());
    }

    #[test]
    fn a_reply_that_is_cut_in_its_middle_leaves_the_outcome_unknown() {
        // As the client crate's reader of replies tells it.
        let cut = redis::RedisError::from((redis::ErrorKind::Parse, "Parse error"));
        assert_eq!(fate(&cut), RequestFate::Unknown, "{cut:?}");
        let error = of_request(cut, Phase::Acquire, "here");
        assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Indeterminate, false), "{error}");
    }

    #[test]
    fn a_server_that_is_full_of_clients_is_unavailable() {
        let told = redis::make_extension_error("ERR".to_owned(), Some("max number of clients reached".to_owned()));
        assert_eq!(of_connect(told, "here").kind(), ErrorKind::Unavailable);
    }
}
