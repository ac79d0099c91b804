//! Certificates for TLS.

use std::fmt;

/// Certificates for TLS, in PEM.
///
/// A server is trusted if its certificate was issued, for the host to which the client connects, by one of the named
/// authorities. There is no way to switch the check off.
///
/// # Cryptography
/// The provider that the process has installed for rustls is taken. Where there is none, connecting installs one
/// (`aws-lc-rs`, which the client crate brings); a program that wants another one installs it before it connects, by
/// `rustls::crypto::CryptoProvider::install_default`.
///
/// The values are kept without the feature `tls` too; only connecting needs it.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    pub(crate) authority: String,
    pub(crate) identity: Option<(String, String)>,
}

impl Tls {
    /// Trusts the authorities in this PEM text and no others, and presents no certificate. Revocation lists in the same
    /// text are minded.
    #[must_use]
    pub fn new(ca_pem: impl Into<String>) -> Self {
        Self { authority: ca_pem.into(), identity: None }
    }

    /// Presents this certificate (with its chain) to servers that ask for one, and proves it with this key.
    #[must_use]
    pub fn with_client_pem(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }
}

impl fmt::Debug for Tls {
    /// Tells what is there, not what it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("client_certificate", &self.identity.is_some()).finish_non_exhaustive()
    }
}
