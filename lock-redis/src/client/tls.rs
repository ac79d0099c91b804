//! TLS over a connection, with the cryptography named here: none is looked for in the process, where a missing or a
//! second one would end it with a panic.

#[cfg(feature = "tls")]
pub(crate) use with_feature::Encryption;
#[cfg(not(feature = "tls"))]
pub(crate) use without_feature::Encryption;

#[cfg(feature = "tls")]
mod with_feature {
    use std::io;
    use std::sync::Arc;

    use lock_core::{Error, Phase};
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

    use crate::tls::Tls;

    /// Everything that is needed to encrypt a connection.
    #[derive(Clone)]
    pub(crate) struct Encryption {
        connector: TlsConnector,
        server_name: Option<ServerName<'static>>,
    }

    impl std::fmt::Debug for Encryption {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Encryption").field("server_name", &self.server_name).finish_non_exhaustive()
        }
    }

    impl Encryption {
        pub(crate) fn new(tls: &Tls) -> Result<Self, Error> {
            let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|e| invalid("no version of TLS is left", e))?
                .with_root_certificates(trusted(tls.authority.as_deref())?);
            let config = match &tls.identity {
                Some((certificate, key)) => {
                    let chain = certificates(certificate)
                        .map_err(|e| invalid("the client's certificate cannot be read as PEM", e))?;
                    let key = PrivateKeyDer::from_pem_slice(key)
                        .map_err(|e| invalid("the client's key cannot be read as PEM", e))?;
                    config
                        .with_client_auth_cert(chain, key)
                        .map_err(|e| invalid("the client's certificate and key do not fit", e))?
                }
                None => config.with_no_client_auth(),
            };
            let server_name = match &tls.server_name {
                Some(name) => Some(
                    ServerName::try_from(name.clone())
                        .map_err(|e| invalid("the server's name is neither a host nor an address", e))?,
                ),
                None => None,
            };
            Ok(Self { connector: TlsConnector::from(Arc::new(config)), server_name })
        }

        pub(crate) async fn over(&self, stream: TcpStream, host: &str) -> io::Result<TlsStream<TcpStream>> {
            let name = match &self.server_name {
                Some(name) => name.clone(),
                None => ServerName::try_from(host.to_owned()).map_err(io::Error::other)?,
            };
            self.connector.connect(name, stream).await
        }
    }

    fn trusted(authority: Option<&[u8]>) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        match authority {
            Some(pem) => {
                let wrong = "the authority's certificate cannot be read as PEM";
                for certificate in certificates(pem).map_err(|e| invalid(wrong, e))? {
                    roots.add(certificate).map_err(|e| invalid("the authority's certificate is not usable", e))?;
                }
            }
            // Single ones that cannot be used, as every system has, are left out.
            None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        }
        if roots.is_empty() {
            let what = "there is no authority to trust: the operating system has none; name one with Tls::with_ca_pem";
            return Err(Error::invalid(Phase::Configure, what).with_backend(crate::guarantees::NAME));
        }
        Ok(roots)
    }

    fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, rustls::pki_types::pem::Error> {
        let all: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?;
        if all.is_empty() {
            return Err(rustls::pki_types::pem::Error::NoItemsFound);
        }
        Ok(all)
    }

    fn invalid(what: &'static str, cause: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::invalid(Phase::Configure, what).with_backend(crate::guarantees::NAME).with_source(cause)
    }
}

#[cfg(not(feature = "tls"))]
mod without_feature {
    use std::io;

    use lock_core::{Error, ErrorKind, Phase};
    use tokio::net::TcpStream;

    use crate::tls::Tls;

    /// The encryption of connections, of which there is none in this build.
    #[derive(Debug, Clone)]
    pub(crate) enum Encryption {}

    impl Encryption {
        pub(crate) fn new(_: &Tls) -> Result<Self, Error> {
            let what = "TLS needs the feature `tls` of lock-redis";
            Err(Error::new(ErrorKind::Unsupported, Phase::Configure, what).with_backend(crate::guarantees::NAME))
        }

        #[expect(clippy::unused_async, reason = "as with the feature")]
        pub(crate) async fn over(&self, _: TcpStream, _: &str) -> io::Result<TcpStream> {
            match *self {}
        }
    }
}
