//! TLS, with an authority that only the test knows. In this program rustls is built with two providers of cryptography.

use lock_testkit_servers::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use lock_testkit_servers::{Certificates, ClientCertificates};
use lock_zk::{Error, ErrorKind, Phase, Tls, ZkConfig, ZkLocks};

use crate::support::{PROMPTLY, SESSION, connected, fails, ms, soon, there};

struct Secure {
    certificates: Certificates,
    server: ZooKeeperServer,
}

impl Secure {
    async fn start(clients: ClientCertificates) -> Option<Self> {
        let certificates = Certificates::new().unwrap();
        let options = ZooKeeperOptions::new().with_tls(&certificates, clients);
        let server = there(ZooKeeperServer::start_with(&options).await)?;
        Some(Self { certificates, server })
    }

    fn trusting(&self) -> Tls {
        Tls::new(self.certificates.authority())
    }

    async fn connect(&self, tls: Tls) -> ZkLocks {
        connected(config(self.server.url()).with_session_timeout(ms(8000)).with_tls(tls)).await
    }

    async fn turns_away(&self, config: ZkConfig) {
        let refused = soon("an answer", PROMPTLY, ZkLocks::connect_with(config)).await;
        let error = fails(refused, ErrorKind::Unavailable);
        assert_eq!(error.phase(), Phase::Connect, "{error:?}");
    }
}

fn config(url: &str) -> ZkConfig {
    ZkConfig::new(url).with_session_timeout(SESSION).with_tick_time(ms(200))
}

/// An error and everything that it says of its cause.
fn told(error: &Error) -> String {
    format!("{error:?} {error}")
}

#[tokio::test]
async fn a_server_is_trusted_if_its_authority_is_and_its_name_fits() {
    let Some(secure) = Secure::start(ClientCertificates::NotAsked).await else { return };
    assert!(secure.server.url().starts_with("zks://"));
    let (a, b) = (secure.connect(secure.trusting()).await, secure.connect(secure.trusting()).await);
    let held = a.mutex("tls").lock().await.unwrap();
    assert!(b.mutex("tls").try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
    secure.server.restart().await.unwrap();
    soon("the next", PROMPTLY, b.mutex("tls").lock()).await.unwrap().release().await.unwrap();

    let stranger = Certificates::new().unwrap();
    secure.turns_away(config(secure.server.url()).with_tls(Tls::new(stranger.authority()))).await;
    let mapped = secure.server.url().replace("127.0.0.1", "[::ffff:127.0.0.1]");
    secure.turns_away(config(&mapped).with_tls(secure.trusting())).await;
    let by_name = secure.server.url().replace("127.0.0.1", "localhost");
    drop(connected(config(&by_name).with_tls(secure.trusting())).await);
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_one_or_nothing() {
    let Some(secure) = Secure::start(ClientCertificates::Required).await else { return };
    secure.turns_away(config(secure.server.url()).with_tls(secure.trusting())).await;
    let stranger = Certificates::new().unwrap();
    let foreign = secure.trusting().with_client_pem(stranger.client_certificate(), stranger.client_key());
    secure.turns_away(config(secure.server.url()).with_tls(foreign)).await;
    let own = (secure.certificates.client_certificate(), secure.certificates.client_key());
    let locks = secure.connect(secure.trusting().with_client_pem(own.0, own.1)).await;
    soon("the lock", PROMPTLY, locks.mutex("tls").lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_port_without_tls_and_a_client_without_tls_do_not_meet_a_port_with_it() {
    let Some(secure) = Secure::start(ClientCertificates::NotAsked).await else { return };
    let unencrypted = secure.server.url().replace("zks://", "zk://");
    secure.turns_away(config(&unencrypted)).await;
    let Some(plain) = crate::support::server().await else { return };
    secure.turns_away(config(plain.url()).with_tls(secure.trusting())).await;
}

#[tokio::test]
async fn what_is_wrong_with_certificates_is_said_before_anything_is_sent_and_without_showing_them() {
    let (certificates, other) = (Certificates::new().unwrap(), Certificates::new().unwrap());
    let trusting = || Tls::new(certificates.authority());
    let at = |host: &str| config(&format!("zks://{host}:1"));
    for wrong in [
        at("127.0.0.1"),
        at("127.0.0.1").with_tls(Tls::new("no certificate")),
        at("127.0.0.1").with_tls(trusting().with_client_pem("none", certificates.client_key())),
        at("127.0.0.1").with_tls(trusting().with_client_pem(certificates.client_certificate(), "s3cret")),
        at("127.0.0.1").with_tls(trusting().with_client_pem(certificates.client_certificate(), other.client_key())),
        at("127.1").with_tls(trusting()),
    ] {
        let shown = format!("{wrong:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("BEGIN"), "{shown}");
        let error = fails(ZkLocks::connect_with(wrong).await, ErrorKind::InvalidArgument);
        assert_eq!(error.phase(), Phase::Configure, "{error:?}");
        assert!(!told(&error).contains("s3cret"), "{error:?}");
    }
}

#[tokio::test]
async fn of_two_providers_of_cryptography_one_is_chosen_for_the_process() {
    let Some(secure) = Secure::start(ClientCertificates::NotAsked).await else { return };
    let locks = secure.connect(secure.trusting()).await;
    assert!(rustls::crypto::CryptoProvider::get_default().is_some());
    // Somebody else's, who names his own.
    let ring = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let named = rustls::ClientConfig::builder_with_provider(ring).with_safe_default_protocol_versions();
    assert!(named.is_ok());
    soon("the lock", PROMPTLY, locks.mutex("tls").lock()).await.unwrap().release().await.unwrap();
}
