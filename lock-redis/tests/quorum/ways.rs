//! Servers that are reached in different ways: over TLS with a client's certificate, behind a Unix socket, plainly.

use lock_redis::{ErrorKind, QuorumConfig, QuorumLocks, Tls};
use lock_testkit_servers::redis::{RedisOptions, RedisServer};
use lock_testkit_servers::{Certificates, ClientCertificates};

use crate::servers::{PROMPTLY, eventually, installed};

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_a_server_is_a_way_to_a_quorum() {
    let certificates = Certificates::new().unwrap();
    let encrypted = RedisOptions::new().with_tls(&certificates, ClientCertificates::Required);
    let behind_a_socket = RedisOptions::new().on_unix_socket().with_user("worker", "s3cret");
    let started = [
        RedisServer::start_with(&encrypted).await,
        RedisServer::start_with(&encrypted).await,
        RedisServer::start_with(&behind_a_socket).await,
    ];
    let Some(servers) = installed(started.into_iter().collect::<Result<Vec<_>, _>>()) else { return };
    let config = QuorumConfig::new(servers.iter().map(RedisServer::url)).with_young_servers(true);
    assert!(config.urls[0].starts_with("rediss://") && config.urls[2].starts_with("unix://"), "{:?}", config.urls);

    let trusting = Tls::new().with_ca_pem(certificates.authority());
    let nameless = QuorumLocks::connect_with(config.clone().with_tls(trusting.clone())).await.unwrap_err();
    assert_eq!(nameless.kind(), ErrorKind::Denied, "{nameless}");
    let known = trusting.with_client_pem(certificates.client_certificate(), certificates.client_key());
    let locks = QuorumLocks::connect_with(config.with_tls(known)).await.unwrap();
    // Each of them is needed by one majority.
    for away in &servers {
        eventually("the others are a majority", PROMPTLY, async || {
            let held = locks.mutex("ways").try_lock().await.ok().flatten()?;
            held.release().await.ok()
        })
        .await;
        away.stop().unwrap();
        let held = eventually("two are enough", PROMPTLY, async || locks.mutex("ways").try_lock().await.ok().flatten());
        held.await.release().await.unwrap();
        away.cont().unwrap();
    }
}
