//! The outcome of failed requests, by the words of the crate.

use zookeeper_client::Error;

use super::{Failure, Fate};

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let fate = match &error {
            Error::NoNode => Fate::Missing,
            Error::NodeExists => Fate::Exists,
            Error::NoAuth | Error::InvalidAcl | Error::AuthFailed => Fate::Denied,
            Error::BadArguments(_) => Fate::Invalid,
            Error::SessionExpired | Error::ClientClosed => Fate::Ended,
            Error::BadVersion => Fate::Changed,
            Error::NoChildrenForEphemerals
            | Error::NotEmpty
            | Error::NotReadOnly
            | Error::QuotaExceeded
            | Error::Throttled
            | Error::Unimplemented
            | Error::UnexpectedErrorCode(_) => Fate::Refused,
            // Connection failures come as several kinds, also as `Custom`. Whatever is not known to be a refusal may have
            // been carried out.
            _ => Fate::Unknown,
        };
        Self { fate, source: Box::new(error) }
    }
}
