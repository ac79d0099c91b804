//! One ZooKeeper server, and the suite's own client of it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lock_testkit::testing::{PROMPTLY, eventually};
use lock_testkit_servers::zookeeper::{
    Acl, Mode, NodeKind, Session, ZooKeeperClient, ZooKeeperOptions, ZooKeeperServer,
};
use lock_testkit_servers::{Certificates, ClientCertificates};

use crate::support::{Traces, installed};
use crate::tls;

#[tokio::test]
async fn a_server_is_gone_with_its_handle_and_remembers_at_a_restart() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let (first, url) = (Traces::of_zookeeper(&server), server.url().to_owned());
    assert_eq!(server.mode().await.unwrap(), Mode::Standalone);
    let client = server.client().await.unwrap();
    client.create("/a", b"1", NodeKind::Persistent).await.unwrap();
    client.create("/mine", b"", NodeKind::Ephemeral).await.unwrap();
    server.restart().await.unwrap();
    assert!(!first.process());
    assert!(client.data("/a").await.is_err(), "the old connection is gone");
    assert_eq!(client.data("/a").await.unwrap().as_deref(), Some(&b"1"[..]));
    let owner = client.exists("/mine").await.unwrap().unwrap().ephemeral_owner;
    assert_eq!(owner, client.session().id(), "the session is still there");
    assert_eq!(server.url(), url);
    let second = Traces::of_zookeeper(&server);
    server.stop().unwrap();
    assert!(!server.is_running());
    drop(server);
    assert!(second.are_gone());
}

#[tokio::test]
async fn a_frozen_server_goes_on() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    server.stop().unwrap();
    assert!(!server.is_running());
    server.cont().unwrap();
    assert_eq!(server.mode().await.unwrap(), Mode::Standalone);
    server.kill().unwrap();
    assert!(server.cont().is_err() && server.pid().is_none());
}

#[tokio::test]
async fn what_an_existing_server_is_asked_it_answers() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let found = ZooKeeperServer::existing(format!("{}/a/b", server.url()));
    found.until_ready().await.unwrap();
    assert!(found.kill().is_err() && found.restart().await.is_err() && found.is_running(), "it is not its own");
    let client = found.client().await.unwrap();
    client.create_all("/").await.unwrap();
    assert!(found.connected_sessions().await.unwrap().contains(&client.session().id()));
    assert_eq!(found.figure("zk_ephemerals_count").await.unwrap(), 0);
    client.create("/c", b"", NodeKind::Ephemeral).await.unwrap();
    assert_eq!(found.figure("zk_ephemerals_count").await.unwrap(), 1);
    assert!(found.figure("zk_coffee").await.is_err());
    let outside = server.client().await.unwrap();
    assert!(outside.exists("/a/b/c").await.unwrap().is_some());
}

#[tokio::test]
async fn a_setting_that_makes_no_sense_is_named() {
    let options = ZooKeeperOptions::new().with_setting("tickTime", "coffee");
    if installed(ZooKeeperServer::start_own().await).is_some() {
        let missing = ZooKeeperServer::start_with(&options).await.unwrap_err().to_string();
        assert!(missing.contains("coffee"), "{missing}");
    }
}

#[tokio::test]
async fn every_kind_of_node_is_made_listed_and_deleted() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let client = server.client().await.unwrap();
    assert_eq!(client.create("/a/b", b"", NodeKind::Persistent).await.unwrap_err().to_string(), "NoNode (-101)");
    client.create_all("/a/b").await.unwrap();
    client.create_all("/a/b").await.unwrap();
    assert_eq!(client.create("/a", b"", NodeKind::Persistent).await.unwrap(), None);
    for (path, kind, made) in [
        ("/a/b/c", NodeKind::Container, "/a/b/c"),
        ("/a/b/c/n-", NodeKind::PersistentSequential, "/a/b/c/n-0000000000"),
        ("/a/b/c/n-", NodeKind::EphemeralSequential, "/a/b/c/n-0000000001"),
        ("/a/b/z", NodeKind::Ephemeral, "/a/b/z"),
    ] {
        assert_eq!(client.create(path, b"data", kind).await.unwrap().as_deref(), Some(made));
    }
    client.sync("/a").await.unwrap();
    let all = ["/a/b", "/a/b/c", "/a/b/c/n-0000000000", "/a/b/c/n-0000000001", "/a/b/z"];
    assert_eq!(client.descendants("/a").await.unwrap(), all);
    assert_eq!(client.descendants("/").await.unwrap()[1..6], all);
    assert_eq!(client.children("/a/b").await.unwrap().unwrap(), ["c", "z"]);
    assert_eq!(client.children("/nowhere").await.unwrap(), None);
    assert!(client.set_data("/a/b/z", b"garbage").await.unwrap());
    assert_eq!(client.data("/a/b/z").await.unwrap().unwrap(), b"garbage");
    let stat = client.exists("/a/b/z").await.unwrap().unwrap();
    assert!(stat.version == 1 && stat.mzxid > stat.czxid && stat.ephemeral_owner == client.session().id(), "{stat:?}");
    let parent = client.exists("/a/b").await.unwrap().unwrap();
    assert!(parent.num_children == 2 && parent.cversion == 2 && parent.ephemeral_owner == 0, "{parent:?}");
    assert!(client.delete("/a/b/c").await.unwrap_err().to_string().starts_with("NotEmpty"));
    assert!(client.delete("/a/b/z").await.unwrap());
    assert!(!client.delete("/a/b/z").await.unwrap() && !client.set_data("/a/b/z", b"").await.unwrap());
    assert_eq!((client.exists("/a/b/z").await.unwrap(), client.data("/a/b/z").await.unwrap()), (None, None));
}

#[tokio::test]
async fn a_session_is_taken_over_by_whoever_knows_its_id() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let victim = ZooKeeperClient::connect_with(server.url(), Duration::from_millis(5500)).await.unwrap();
    assert_eq!(victim.timeout(), Duration::from_millis(5500));
    victim.create("/lock", b"", NodeKind::Ephemeral).await.unwrap();
    let thief = server.client().await.unwrap();
    let owner = thief.exists("/lock").await.unwrap().unwrap().ephemeral_owner;
    assert_eq!(Session::of(owner), *victim.session(), "the password is computed as the server does");
    let taken = ZooKeeperClient::take_over(server.url(), &Session::of(owner)).await.unwrap();
    assert_eq!(taken.session(), victim.session());
    assert_eq!(taken.ephemerals().await.unwrap(), ["/lock"], "what its end will cost");
    assert!(victim.exists("/lock").await.is_err(), "its connection is closed");
    assert!(victim.exists("/lock").await.unwrap().is_some(), "and it takes the session back");
    server.expire(owner).await.unwrap();
    assert_eq!(thief.exists("/lock").await.unwrap(), None);
    assert!(victim.exists("/lock").await.is_err(), "its connection is closed");
    let refusal = victim.exists("/lock").await.unwrap_err().to_string();
    assert!(refusal.contains("SessionExpired"), "{refusal}");
    let refusal = server.expire(owner).await.unwrap_err().to_string();
    assert!(refusal.contains("SessionExpired"), "{refusal}");
}

#[tokio::test]
async fn a_session_ends_with_its_client_or_after_its_timeout() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let watcher = server.client().await.unwrap();
    let least = ZooKeeperClient::connect_with(server.url(), Duration::ZERO).await.unwrap();
    assert_eq!(least.timeout(), Duration::from_millis(400), "two ticks are the least");
    for closes in [true, false] {
        let other = ZooKeeperClient::connect_with(server.url(), Duration::from_secs(3)).await.unwrap();
        other.create("/other", b"", NodeKind::Ephemeral).await.unwrap();
        if closes {
            other.close().await.unwrap();
            assert_eq!(watcher.exists("/other").await.unwrap(), None);
        } else {
            drop(other);
            assert!(watcher.exists("/other").await.unwrap().is_some());
            let over = async || watcher.exists("/other").await.unwrap().is_none();
            eventually("the end of its session", PROMPTLY, over).await;
        }
    }
}

#[tokio::test]
async fn rights_belong_to_credentials() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let url = server.url().replace("zk://", "zk://me:secret@");
    let (me, stranger) = (ZooKeeperClient::connect(&url).await.unwrap(), server.client().await.unwrap());
    me.create("/mine", b"1", NodeKind::Persistent).await.unwrap();
    assert_eq!(me.acl("/mine").await.unwrap().unwrap(), [Acl::open()]);
    assert!(
        me.set_acl("/mine", &[Acl { permissions: 31, scheme: "auth".to_owned(), id: String::new() }]).await.unwrap()
    );
    let acl = me.acl("/mine").await.unwrap().unwrap();
    assert!(acl.len() == 1 && acl[0].scheme == "digest" && acl[0].id.starts_with("me:"), "{acl:?}");
    assert!(stranger.data("/mine").await.unwrap_err().to_string().starts_with("NoAuth"));
    assert_eq!(me.data("/mine").await.unwrap().unwrap(), b"1");
    server.restart().await.unwrap();
    assert!(me.data("/mine").await.is_err(), "the old connection is gone");
    assert_eq!(me.data("/mine").await.unwrap().unwrap(), b"1", "credentials are shown again");
}

#[tokio::test]
async fn tls_is_for_those_who_trust_the_authority() {
    let certificates = Certificates::new().unwrap();
    let options = ZooKeeperOptions::new().with_tls(&certificates, ClientCertificates::NotAsked);
    let Some(server) = installed(ZooKeeperServer::start_with(&options).await) else { return };
    assert!(srvr_by_tls(&server, &certificates, None).unwrap().contains("Mode: standalone"));
    let others = Certificates::new().unwrap();
    let refusal = srvr_by_tls(&server, &others, None).unwrap_err().to_string();
    assert!(refusal.contains("certificate"), "{refusal}");
    assert!(server.client().await.unwrap().exists("/").await.unwrap().is_some(), "there is a plain port too");
}

#[tokio::test]
async fn tls_with_required_certificates_turns_away_who_has_none() {
    let certificates = Certificates::new().unwrap();
    let options = ZooKeeperOptions::new().with_tls(&certificates, ClientCertificates::Required);
    let Some(server) = installed(ZooKeeperServer::start_with(&options).await) else { return };
    assert!(srvr_by_tls(&server, &certificates, Some(&certificates)).unwrap().contains("Mode: standalone"));
    assert!(srvr_by_tls(&server, &certificates, None).is_err());
    let others = Certificates::new().unwrap();
    assert!(srvr_by_tls(&server, &certificates, Some(&others)).is_err());
}

fn srvr_by_tls(
    server: &ZooKeeperServer,
    trusted: &Certificates,
    shown: Option<&Certificates>,
) -> std::io::Result<String> {
    let mut stream = tls::connect(server.url(), trusted, shown)?;
    stream.write_all(b"srvr")?;
    let mut answer = [0; 4096];
    let mut said = String::new();
    while !said.contains("Mode: standalone") {
        match stream.read(&mut answer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            length => said.push_str(&String::from_utf8_lossy(&answer[..length])),
        }
    }
    Ok(said)
}

#[tokio::test]
async fn users_of_sasl_are_challenged_and_may_own_nodes() {
    let options = ZooKeeperOptions::new().with_sasl_user("worker", "secret");
    let Some(server) = installed(ZooKeeperServer::start_with(&options).await) else { return };
    let client = server.client().await.unwrap();
    client.create("/theirs", b"", NodeKind::Persistent).await.unwrap();
    let owned = Acl { permissions: 31, scheme: "sasl".to_owned(), id: "worker".to_owned() };
    assert!(client.set_acl("/theirs", &[owned]).await.unwrap());
    assert!(client.data("/theirs").await.unwrap_err().to_string().starts_with("NoAuth"));
    let challenge = sasl_challenge(&server);
    assert!(challenge.contains("nonce=") && challenge.contains("md5-sess"), "{challenge}");
}

/// Returns the server's reply to a client that begins SASL: a new session, then request 1 of type 102 with nothing in it.
fn sasl_challenge(server: &ZooKeeperServer) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let greeting = [[0; 12].as_slice(), &9000_i32.to_be_bytes(), &[0; 8], &16_i32.to_be_bytes(), &[0; 17]].concat();
    frame(&mut stream, &greeting);
    frame(&mut stream, &[1_i32, 102, 0].map(i32::to_be_bytes).concat())
}

fn frame(stream: &mut TcpStream, body: &[u8]) -> String {
    stream.write_all(&[&u32::try_from(body.len()).unwrap().to_be_bytes(), body].concat()).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(length).try_into().unwrap()];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
