//! Certificates for TLS, made for one test.

use std::io;
use std::path::Path;

use lock_testkit::HarnessError;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// A certificate authority that nobody else trusts, with a certificate for a server on the loopback interface
/// (`127.0.0.1`, `localhost`) and one for a client. Everything is in PEM.
#[derive(Clone)]
pub struct Certificates {
    authority: String,
    server: CertifiedKey,
    client: CertifiedKey,
}

/// Whether a server that speaks TLS asks its clients for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientCertificates {
    /// Required: a client without one that the authority signed is turned away.
    Required,
    /// Nobody is asked.
    NotAsked,
}

/// A certificate and its key.
#[derive(Clone)]
struct CertifiedKey {
    certificate: String,
    key: String,
}

impl Certificates {
    /// A new authority and what it has signed.
    ///
    /// # Errors
    /// If no key can be made.
    pub fn new() -> Result<Self, HarnessError> {
        let key = KeyPair::generate()?;
        let params = authority()?;
        let certificate = params.self_signed(&key)?;
        let issuer = Issuer::new(params, key);
        let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        Ok(Self {
            authority: certificate.pem(),
            // Servers are clients of each other.
            server: CertifiedKey::new("server", &["127.0.0.1", "localhost"], &both, &issuer)?,
            client: CertifiedKey::new("client", &[], &both[1..], &issuer)?,
        })
    }

    /// The authority's certificate, which a client has to trust.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The client's certificate.
    #[must_use]
    pub fn client_certificate(&self) -> &str {
        &self.client.certificate
    }

    /// The key of the client's certificate.
    #[must_use]
    pub fn client_key(&self) -> &str {
        &self.client.key
    }

    /// Writes what a server needs into its directory.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let CertifiedKey { certificate, key } = &self.server;
        std::fs::write(directory.join("ca.pem"), &self.authority)?;
        std::fs::write(directory.join("server.pem"), certificate)?;
        std::fs::write(directory.join("server.key"), key)?;
        // As Java wants it.
        std::fs::write(directory.join("identity.pem"), format!("{key}{certificate}"))
    }
}

impl CertifiedKey {
    fn new(
        name: &str,
        hosts: &[&str],
        usages: &[ExtendedKeyUsagePurpose],
        issuer: &Issuer<'_, KeyPair>,
    ) -> Result<Self, rcgen::Error> {
        let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name.push(DnType::CommonName, format!("lock-testkit {name}"));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages.to_vec();
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        Ok(Self { certificate: params.signed_by(&key, issuer)?.pem(), key: key.serialize_pem() })
    }
}

fn authority() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new([])?;
    params.distinguished_name.push(DnType::CommonName, "lock-testkit");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

impl std::fmt::Debug for Certificates {
    /// Without the keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").field("authority", &self.authority).finish_non_exhaustive()
    }
}
