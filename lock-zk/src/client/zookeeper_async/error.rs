//! The outcome of failed requests, by the words of the crate.

use zookeeper_async::ZkError;

use super::{Failure, Fate};

impl From<ZkError> for Failure {
    fn from(error: ZkError) -> Self {
        let fate = match error {
            ZkError::NoNode => Fate::Missing,
            ZkError::NodeExists => Fate::Exists,
            ZkError::NoAuth | ZkError::InvalidACL | ZkError::AuthFailed => Fate::Denied,
            ZkError::BadArguments => Fate::Invalid,
            ZkError::SessionExpired => Fate::Ended,
            ZkError::BadVersion => Fate::Changed,
            ZkError::NoChildrenForEphemerals
            | ZkError::NotEmpty
            | ZkError::NotReadOnly
            | ZkError::EphemeralOnLocalSession => Fate::Refused,
            // `Unimplemented` stands for every number that the crate does not know. Whatever is not known to be a refusal may
            // have been carried out.
            _ => Fate::Unknown,
        };
        Self { fate, source: Box::new(error) }
    }
}
