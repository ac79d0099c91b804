//! The content of the record beside an election's lock: the leader's address.

use lock_core::{Error, ErrorKind, LockName, Phase, Record};
use serde::{Deserialize, Serialize};

/// The announcement of a leader.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Announcement {
    pub(crate) address: String,
}

impl Announcement {
    /// Reads what the record of this election says.
    ///
    /// # Errors
    /// If it holds something else.
    pub(crate) fn of(record: &Record, election: &LockName) -> Result<Self, Error> {
        serde_json::from_slice(&record.data).map_err(|error| {
            let what = "the record beside the lock is not a leader's";
            Error::new(ErrorKind::Protocol, Phase::Inspect, what).with_name(election).with_source(error)
        })
    }

    /// Returns the form in the record of this election.
    ///
    /// # Errors
    /// If it does not fit into a record.
    pub(crate) fn to_bytes(&self, election: &LockName) -> Result<Vec<u8>, Error> {
        // A text always has a form.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        if bytes.len() > Record::MAX_BYTES {
            let what = format!("the address has {} bytes, too many for a record", self.address.len());
            return Err(Error::new(ErrorKind::InvalidArgument, Phase::Configure, what).with_name(election));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use lock_core::FencingToken;
    use lock_testkit::fuzz;

    use super::*;

    #[test]
    fn whatever_a_record_says_is_an_address_or_an_error() {
        let election = LockName::from("leader");
        let samples: [&[u8]; 2] = [br#"{"address":"http://10.0.0.7:8080"}"#, br#"{"address":""}"#];
        fuzz::bytes("announcements of leaders", &samples, |bytes| {
            if bytes.len() > Record::MAX_BYTES {
                return; // no backend keeps it
            }
            let mut record = Record::new(FencingToken::new(1).unwrap());
            record.data = bytes.to_vec();
            match Announcement::of(&record, &election) {
                Ok(read) => {
                    record.data = read.to_bytes(&election).unwrap();
                    assert_eq!(Announcement::of(&record, &election).unwrap(), read);
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Protocol, "{error}"),
            }
        });
    }
}
