//! A relay in front of a server that can let connections die in silence: they stay open, and nothing comes back. It can also spoil the text
//! of a script, so that the server refuses it unread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use lock_redis::{LeaseOptions, RedisLocks};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::server::{Server, about_time, calls, ms};

struct Relay {
    port: u16,
    /// Whether the connections made so far swallow what the server says.
    silent: Arc<std::sync::Mutex<Arc<AtomicBool>>>,
    /// Whether the next text is to be refused.
    spoils: Arc<AtomicBool>,
}

/// The beginning of a command with the text of a script, and of another one, which has no such arguments.
const TEXT: &[u8] = b"$4\r\nEVAL\r\n";
const SPOILED: &[u8] = b"$4\r\nPING\r\n";

impl Relay {
    async fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let silent = Arc::<std::sync::Mutex<Arc<AtomicBool>>>::default();
        let spoils = Arc::<AtomicBool>::default();
        let (target, present, spoil) = (server.address().to_owned(), silent.clone(), spoils.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                tokio::spawn(pass_on(from_client, to_server, spoil.clone()));
                tokio::spawn(pass(from_server, to_client, present.lock().unwrap().clone()));
            }
        });
        Self { port, silent, spoils }
    }

    /// From now on the present connections say nothing any more; new ones are sound.
    fn silence(&self) {
        std::mem::take(&mut *self.silent.lock().unwrap()).store(true, Ordering::Release);
    }
}

/// Passes what the client says on.
async fn pass_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, spoils: Arc<AtomicBool>) {
    let mut buffer = Vec::new();
    while let Ok(1..) = from.read_buf(&mut buffer).await {
        if (1..TEXT.len()).any(|part| buffer.ends_with(&TEXT[..part])) {
            continue;
        }
        if spoils.load(Ordering::Acquire)
            && let Some(at) = buffer.windows(TEXT.len()).position(|part| part == TEXT)
            && spoils.swap(false, Ordering::AcqRel)
        {
            buffer[at..at + TEXT.len()].copy_from_slice(SPOILED);
        }
        if to.write_all(&buffer).await.is_err() {
            return;
        }
        buffer.clear();
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, silent: Arc<AtomicBool>) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if !silent.load(Ordering::Acquire) && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

#[test]
fn a_short_lease_outlives_connections_that_die_in_silence() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let relay = Relay::to(&server).await;
        let locks = RedisLocks::connect(format!("redis://127.0.0.1:{}", relay.port)).await.unwrap();
        let held = locks.mutex("relay").with_lease(LeaseOptions::new(ms(4000))).lock().await.unwrap();
        let mut lost = held.lost();
        for _ in 0..2 {
            relay.silence();
            let lost = tokio::time::timeout(ms(6000), &mut lost).await;
            assert!(lost.is_err() && held.is_held(), "{lost:?}");
        }
        held.release().await.unwrap();
        server.has_nothing_left().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_refused_unread_is_told_once_more_and_not_by_everybody() {
    const MANY: u64 = 300;
    let Some(server) = Server::start().await else { return };
    let relay = Relay::to(&server).await;
    let locks = RedisLocks::connect(format!("redis://127.0.0.1:{}", relay.port)).await.unwrap();
    let mutex = locks.mutex("relay");
    mutex.inspect().await.unwrap();
    assert!(server.say("SCRIPT FLUSH").await.is_ok());
    let before = calls(&server, "eval:").await;
    relay.spoils.store(true, Ordering::Release);
    let outcomes = join_all((0..MANY).map(|_| mutex.inspect())).await;
    assert!(!relay.spoils.load(Ordering::Acquire));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 1);
    let texts = calls(&server, "eval:").await - before;
    assert!((1..MANY / 3).contains(&texts), "the text was sent {texts} times");
}
