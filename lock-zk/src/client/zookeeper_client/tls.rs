//! TLS. The client crate brings rustls, and takes the provider of cryptography that the process has.

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use zookeeper_client::{Client, Connector, Error as ClientError, TlsOptions};

use super::{Failure, Fate};
use crate::tls::Tls;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The cause, where the crate tells none.
const NO_SESSION: &str = "no server opened a session over TLS in time; a certificate that one side does not accept looks \
                          like a server that is down, and the servers' log tells them apart";

/// A new session over TLS.
pub(super) async fn connect(connector: Connector, tls: &Tls, target: &str) -> Result<Client, Failure> {
    provide_cryptography();
    match connector.with_tls(options(tls)?).secure_connect(target).await {
        Err(ClientError::Timeout | ClientError::NoHosts) => {
            Err(Failure { fate: Fate::Unknown, source: NO_SESSION.into() })
        }
        connected => Ok(connected?),
    }
}

/// Without a provider of the process, rustls would have to choose between those that it was built with, and would end the
/// program if they were two.
fn provide_cryptography() {
    // It fails if there is one: then that one is taken.
    let _ = aws_lc_rs::default_provider().install_default();
}

fn options(tls: &Tls) -> Result<TlsOptions, ClientError> {
    let options = TlsOptions::new().with_pem_ca(&tls.authority)?;
    match &tls.identity {
        Some((certificate, key)) => options.with_pem_identity(certificate, key),
        None => Ok(options),
    }
}

/// Checks for what the crate would refuse when it connects, or end the program: certificates that cannot be read, a key that is
/// not that of its certificate, a host that no certificate can name.
pub(crate) fn check(tls: &Tls, servers: &str) -> Result<(), (&'static str, Cause)> {
    options(tls).map_err(|cause| ("a certificate or key for TLS cannot be read as PEM", cause.into()))?;
    if let Some((certificate, key)) = &tls.identity {
        fit(certificate, key).map_err(|cause| ("the client's certificate and key for TLS do not fit", cause))?;
    }
    for server in servers.split(',') {
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host).trim_matches(['[', ']']);
        let wrong = "over TLS, a server is a host as certificates name it, or an address";
        ServerName::try_from(host).map_err(|cause| (wrong, cause.into()))?;
    }
    Ok(())
}

fn fit(certificate: &str, key: &str) -> Result<(), Cause> {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())?;
    Ok(())
}
