//! A relay in front of a server that can let connections die in silence: they stay open, and nothing comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_redis::{LeaseOptions, RedisLocks};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::server::{Server, about_time, ms};

struct Relay {
    port: u16,
    /// Whether the connections made so far swallow what the server says.
    silent: Arc<std::sync::Mutex<Arc<AtomicBool>>>,
}

impl Relay {
    async fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let silent = Arc::<std::sync::Mutex<Arc<AtomicBool>>>::default();
        let (target, present) = (server.address().to_owned(), silent.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                tokio::spawn(pass(from_client, to_server, Arc::default()));
                tokio::spawn(pass(from_server, to_client, present.lock().unwrap().clone()));
            }
        });
        Self { port, silent }
    }

    /// From now on the present connections say nothing any more; new ones are sound.
    fn silence(&self) {
        std::mem::take(&mut *self.silent.lock().unwrap()).store(true, Ordering::Release);
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
