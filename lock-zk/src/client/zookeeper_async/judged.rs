//! The outcome of a request as far as it is known to be its own.

use super::{Failure, Fate};

/// The outcome of a request, and the connection over which it went.
pub(super) struct Judged<T> {
    pub(super) outcome: Result<T, Failure>,
    pub(super) connection: u64,
}

impl<T> Judged<T> {
    /// The outcome, if a proof that went behind it over the same connection shows that the answer belongs to this request.
    pub(super) fn proven_by(self, proof: &Judged<()>) -> Result<T, Failure> {
        match &proof.outcome {
            Ok(()) if proof.connection == self.connection => self.outcome,
            Err(Failure { fate: Fate::Ended, .. }) => {
                Err(Failure { fate: Fate::Ended, source: "the session is over".into() })
            }
            _ => {
                let source = "the answer may be that to another request".into();
                Err(Failure {
                    fate: Fate::Unknown,
                    source: self.outcome.err().map_or(source, |failure| failure.source),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure<T>(fate: Fate) -> Result<T, Failure> {
        Err(Failure { fate, source: "a test's".into() })
    }

    #[test]
    fn an_outcome_counts_with_a_proof_over_its_own_connection_only() {
        let proven = |outcome, proof, connection| {
            let outcome = Judged { outcome, connection: 1 };
            outcome.proven_by(&Judged { outcome: proof, connection }).map_err(|failure| failure.fate)
        };
        assert_eq!(proven(Ok(()), Ok(()), 1), Ok(()));
        assert_eq!(proven(failure(Fate::Missing), Ok(()), 1), Err(Fate::Missing));
        assert_eq!(proven(Ok(()), Ok(()), 2), Err(Fate::Unknown), "it went over the next one");
        assert_eq!(proven(Ok(()), failure(Fate::Missing), 1), Err(Fate::Unknown), "the refusal of the proof");
        assert_eq!(proven(Ok(()), failure(Fate::Ended), 1), Err(Fate::Ended));
    }
}
