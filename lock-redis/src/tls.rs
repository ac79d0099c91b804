//! The certificates for TLS.

use std::fmt;

/// Certificates for TLS, in PEM.
///
/// By default a server is trusted if its certificate was issued, for the host to which the client connects, by one of
/// the authorities that the operating system trusts. There is no way to switch the check off.
///
/// The values are kept without the feature `tls` too; only connecting needs it.
///
/// ```
/// use lock_redis::{RedisConfig, Tls};
///
/// # let (ca, certificate, key) = ("", "", "");
/// let tls = Tls::new().with_ca_pem(ca).with_client_pem(certificate, key);
/// let config = RedisConfig::new("rediss://redis.example/").with_tls(tls);
/// # let _ = config;
/// ```
#[derive(Clone, Default)]
pub struct Tls {
    pub(crate) authority: Option<Vec<u8>>,
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) server_name: Option<String>,
}

impl Tls {
    /// Trusts what the operating system trusts, and presents no certificate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities in this PEM text, and no others.
    #[must_use]
    pub fn with_ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority = Some(pem.into());
        self
    }

    /// Presents this certificate (with its chain) to servers that ask for one, and proves it with this key.
    #[must_use]
    pub fn with_client_pem(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Expects this name in every server's certificate, instead of the host to which the client connects: for servers
    /// that are reached by addresses of which their certificates know nothing, such as those that a cluster or a
    /// sentinel tells.
    #[must_use]
    pub fn with_server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }
}

impl fmt::Debug for Tls {
    /// Shows what is there, not what it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("own_ca", &self.authority.is_some())
            .field("client_certificate", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish()
    }
}
