//! The identity of a client, and the rights to the nodes that it makes.

use std::fmt;

use lock_core::{Error, Phase};

/// The identities that may read, change and delete the nodes that a client makes, the directories of its locks included.
///
/// Everybody who shares a lock needs all rights to its directory and nodes: a waiter reads the node before it, an operator
/// deletes a holder's.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Anybody who reaches the servers, as with Curator's defaults.
    #[default]
    Everybody,
    /// All that show the same credentials as this client.
    Creator,
    /// These identities, each a scheme and an id as ZooKeeper writes them: `("digest", "user:base64 of sha1")`,
    /// `("sasl", "user")`, `("ip", "10.0.0.0/8")`.
    Only(Vec<(String, String)>),
}

impl Access {
    /// Returns the number of bytes that these rights take in the request for each node.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            // An identity that everybody knows.
            Self::Everybody | Self::Creator => 0,
            // The rights, and the lengths of two texts.
            Self::Only(identities) => identities.iter().map(|(scheme, id)| 12 + scheme.len() + id.len()).sum(),
        }
    }
}

impl fmt::Debug for Access {
    /// The schemes of identities: the id of a `digest` is made of a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everybody => f.write_str("Everybody"),
            Self::Creator => f.write_str("Creator"),
            Self::Only(identities) => {
                f.write_str("Only")?;
                f.debug_list().entries(identities.iter().map(|(scheme, _)| scheme)).finish()
            }
        }
    }
}

/// The credentials that a client shows to the servers.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// The scheme `digest`: the password goes over the wire as it is.
    Digest { user: String, password: String },
    /// SASL with `DIGEST-MD5`: the password itself is not sent.
    Sasl { user: String, password: String },
}

impl fmt::Debug for Credentials {
    /// Neither user nor password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Digest { .. } => "Digest",
            Self::Sasl { .. } => "Sasl",
        })
    }
}

impl Credentials {
    fn check(&self) -> Result<(), Error> {
        match self {
            Self::Digest { user, .. } if user.is_empty() || user.contains(':') => {
                Err(invalid("a user of the scheme digest has a name, without a colon"))
            }
            Self::Sasl { user, .. } if user.is_empty() => Err(invalid("a user of SASL has a name")),
            Self::Sasl { .. } if !cfg!(feature = "sasl") => {
                let what = "SASL needs the feature \"sasl\" of lock-zk";
                Err(Error::new(lock_core::ErrorKind::Unsupported, Phase::Configure, what)
                    .with_backend(crate::guarantees::NAME))
            }
            _ => Ok(()),
        }
    }
}

/// Everything about it that can be checked without a server.
pub(crate) fn check(access: &Access, credentials: Option<&Credentials>) -> Result<(), Error> {
    match access {
        Access::Creator if credentials.is_none() => {
            return Err(invalid("only a client with credentials can keep its nodes to itself"));
        }
        Access::Only(identities) if identities.is_empty() => return Err(invalid("nobody may touch the nodes")),
        _ => {}
    }
    credentials.map_or(Ok(()), Credentials::check)
}

fn invalid(what: &'static str) -> Error {
    Error::invalid(Phase::Configure, what).with_backend(crate::guarantees::NAME)
}
