//! TLS, with an authority that only the test knows.

use lock_redis::{Error, ErrorKind, RedisConfig, RedisLocks, Retry, Tls};
use lock_testkit_servers::redis::{RedisOptions, RedisServer};
use lock_testkit_servers::{Certificates, ClientCertificates};

use crate::support::{PROMPTLY, configured, connect, installed, obtain, told};

struct Secure {
    certificates: Certificates,
    server: RedisServer,
}

impl Secure {
    async fn start(clients: ClientCertificates) -> Option<Self> {
        let certificates = Certificates::new().unwrap();
        let options = RedisOptions::new().with_tls(&certificates, clients);
        let server = installed(RedisServer::start_with(&options).await)?;
        Some(Self { certificates, server })
    }

    fn trusting(&self) -> Tls {
        Tls::new().with_ca_pem(self.certificates.authority())
    }

    async fn connect(&self, tls: Tls) -> Result<RedisLocks, Error> {
        configured(RedisConfig::new(self.server.url()).with_tls(tls)).await
    }

    async fn is_refused(&self, tls: Tls) {
        let error = self.connect(tls).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Denied, Retry::Never), "{error:?}");
        assert!(told(&error).contains("TLS"), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_trusted_if_its_authority_is_and_its_name_fits() {
    let Some(secure) = Secure::start(ClientCertificates::NotAsked).await else { return };
    assert!(secure.server.url().starts_with("rediss://"));
    let (a, b) = (secure.connect(secure.trusting()).await.unwrap(), secure.connect(secure.trusting()).await.unwrap());
    let held = a.mutex("tls").lock().await.unwrap();
    let waiting = tokio::spawn(async move { obtain(&b, "tls", PROMPTLY).await });
    held.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    secure.server.restart().await.unwrap();
    obtain(&a, "tls", PROMPTLY).await.release().await.unwrap();

    let stranger = Certificates::new().unwrap();
    secure.is_refused(Tls::new().with_ca_pem(stranger.authority())).await;
    secure.is_refused(secure.trusting().with_server_name("redis.example.com")).await;
    let by_name = secure.connect(secure.trusting().with_server_name("localhost")).await.unwrap();
    obtain(&by_name, "tls", PROMPTLY).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_a_certificate_gets_one_or_nothing() {
    let Some(secure) = Secure::start(ClientCertificates::Required).await else { return };
    secure.is_refused(secure.trusting()).await;
    let stranger = Certificates::new().unwrap();
    let foreign = secure.trusting().with_client_pem(stranger.client_certificate(), stranger.client_key());
    secure.is_refused(foreign).await;
    let own = (secure.certificates.client_certificate(), secure.certificates.client_key());
    let locks = secure.connect(secure.trusting().with_client_pem(own.0, own.1)).await.unwrap();
    obtain(&locks, "tls", PROMPTLY).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_without_tls_and_a_client_without_tls_do_not_meet_a_port_with_it() {
    let Some(secure) = Secure::start(ClientCertificates::NotAsked).await else { return };
    let plain = format!("redis://{}", secure.server.address());
    obtain(&connect(&plain).await, "tls", PROMPTLY).await.release().await.unwrap();
    let encrypted = RedisConfig::new(plain).with_tls(secure.trusting());
    let error = RedisLocks::connect_with(encrypted).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unavailable), "{error:?}");
    let unencrypted = secure.server.url().replace("rediss://", "redis://");
    let error = RedisLocks::connect(unencrypted).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_cannot_be_read_are_said_to_be_so_without_showing_them() {
    let certificates = Certificates::new().unwrap();
    let trusting = || Tls::new().with_ca_pem(certificates.authority());
    let other = Certificates::new().unwrap();
    let wrong = [
        Tls::new().with_ca_pem("no certificate"),
        trusting().with_client_pem("none", certificates.client_key()),
        trusting().with_client_pem(certificates.client_certificate(), "s3cret"),
        trusting().with_client_pem(certificates.client_certificate(), other.client_key()),
        trusting().with_server_name("not a host"),
    ];
    for tls in wrong {
        let shown = format!("{tls:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("BEGIN"), "{shown}");
        let config = RedisConfig::new("rediss://127.0.0.1:1/").with_tls(tls);
        let error = RedisLocks::connect_with(config).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
        assert!(!told(&error).contains("s3cret"), "{error:?}");
    }
}
