//! One server.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use lock_testkit_servers::redis::{RedisOptions, RedisServer};
use lock_testkit_servers::resp::Resp;
use lock_testkit_servers::{Certificates, ClientCertificates};

use crate::support::{Traces, installed};
use crate::tls;

#[tokio::test]
async fn a_server_is_gone_with_its_handle_and_forgets_at_a_restart() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let first = Traces::of(&server);
    let (client, url) = (server.client().unwrap(), server.url().to_owned());
    assert!(client.command(&["SET", "a", "1"]).await.unwrap().is_ok());
    server.restart().await.unwrap();
    assert!(!first.process());
    assert!(client.command(&["GET", "a"]).await.is_err(), "the old connection is gone");
    assert_eq!(client.command(&["GET", "a"]).await.unwrap().to_string(), "nil");
    assert_eq!(server.url(), url);
    let traces = Traces::of(&server);
    server.stop().unwrap();
    assert!(!server.is_running());
    drop(server);
    assert!(traces.are_gone());
}

#[tokio::test]
async fn a_frozen_server_goes_on() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    server.stop().unwrap();
    assert!(!server.is_running());
    server.cont().unwrap();
    assert!(server.client().unwrap().command(&["PING"]).await.is_ok());
    server.kill().unwrap();
    assert!(server.cont().is_err() && server.pid().is_none());
}

#[tokio::test]
async fn a_persistent_server_knows_after_a_kill_what_it_has_answered() {
    let Some(server) = installed(RedisServer::start_with(&RedisOptions::new().persistent()).await) else { return };
    let client = server.client().unwrap();
    for number in 0..100 {
        client.command(&["RPUSH", "numbers", &number.to_string()]).await.unwrap();
    }
    server.restart().await.unwrap();
    let left = server.client().unwrap().command(&["LLEN", "numbers"]).await.unwrap();
    assert_eq!(left.as_int(), Some(100));
}

#[tokio::test]
async fn a_server_with_a_user_turns_others_away() {
    let options = RedisOptions::new().with_user("worker", "secret");
    let Some(server) = installed(RedisServer::start_with(&options).await) else { return };
    let who = server.client().unwrap().command(&["ACL", "WHOAMI"]).await.unwrap();
    assert_eq!(who.as_text().as_deref(), Some("worker"));
    let stranger = Resp::new(server.address());
    let refusal = stranger.command(&["PING"]).await.unwrap_err().to_string();
    assert!(refusal.contains("NOAUTH"), "{refusal}");
    let impostor = Resp::from_url(&server.url().replace("secret", "guess")).unwrap();
    let refusal = impostor.command(&["PING"]).await.unwrap_err().to_string();
    assert!(refusal.contains("WRONGPASS"), "{refusal}");
}

#[tokio::test]
async fn a_full_server_refuses_to_write() {
    let options = RedisOptions::new().with_max_memory("1mb", "noeviction");
    let Some(server) = installed(RedisServer::start_with(&options).await) else { return };
    let client = server.client().unwrap();
    let refusal = client.command(&["SET", "a", &"x".repeat(2_000_000)]).await;
    let refusal = match refusal {
        // The server looks at its memory before each command, not within one.
        Ok(_) => client.command(&["SET", "b", "1"]).await.unwrap_err(),
        Err(refusal) => refusal,
    };
    assert!(refusal.to_string().contains("OOM"), "{refusal}");
}

#[tokio::test]
async fn an_unknown_option_is_named() {
    let options = RedisOptions::new().with_directive("make-coffee", "yes");
    if installed(RedisServer::start_own().await).is_some() {
        let missing = RedisServer::start_with(&options).await.unwrap_err().to_string();
        assert!(missing.contains("make-coffee"), "{missing}");
    }
}

#[tokio::test]
async fn a_server_answers_on_its_unix_socket() {
    let Some(server) = installed(RedisServer::start_with(&RedisOptions::new().on_unix_socket()).await) else { return };
    let path = server.url().strip_prefix("unix://").unwrap();
    assert_eq!(ping(UnixStream::connect(path).unwrap()).unwrap(), "+PONG\r\n");
    assert!(server.client().unwrap().command(&["PING"]).await.is_ok());
}

#[tokio::test]
async fn tls_is_for_those_who_trust_the_authority() {
    let certificates = Certificates::new().unwrap();
    let options = RedisOptions::new().with_tls(&certificates, ClientCertificates::NotAsked);
    let Some(server) = installed(RedisServer::start_with(&options).await) else { return };
    assert_eq!(ping_by_tls(&server, &certificates, None).unwrap(), "+PONG\r\n");
    let others = Certificates::new().unwrap();
    let refusal = ping_by_tls(&server, &others, None).unwrap_err().to_string();
    assert!(refusal.contains("certificate"), "{refusal}");
    assert!(server.client().unwrap().command(&["PING"]).await.is_ok());
}

#[tokio::test]
async fn tls_with_required_certificates_turns_away_who_has_none() {
    let certificates = Certificates::new().unwrap();
    let options = RedisOptions::new().with_tls(&certificates, ClientCertificates::Required);
    let Some(server) = installed(RedisServer::start_with(&options).await) else { return };
    assert_eq!(ping_by_tls(&server, &certificates, Some(&certificates)).unwrap(), "+PONG\r\n");
    assert!(ping_by_tls(&server, &certificates, None).is_err());
    let others = Certificates::new().unwrap();
    assert!(ping_by_tls(&server, &certificates, Some(&others)).is_err());
}

fn ping_by_tls(server: &RedisServer, trusted: &Certificates, shown: Option<&Certificates>) -> std::io::Result<String> {
    ping(tls::connect(server.url(), trusted, shown)?)
}

fn ping(mut stream: impl Read + Write) -> Result<String, std::io::Error> {
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
