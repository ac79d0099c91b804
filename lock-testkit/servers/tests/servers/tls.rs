//! A client that speaks TLS.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use lock_testkit_servers::Certificates;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A connection to the server at this URL, as a client that trusts the first authority and shows the second one's
/// certificate.
pub(crate) fn connect(
    url: &str,
    trusted: &Certificates,
    shown: Option<&Certificates>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.authority().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some(shown) => {
            let chain = vec![CertificateDer::from_pem_slice(shown.client_certificate().as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(shown.client_key().as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let (_, address) = url.split_once("://").unwrap();
    let connection = ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap();
    Ok(StreamOwned::new(connection, TcpStream::connect(address.trim_end_matches('/'))?))
}
