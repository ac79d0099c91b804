//! A master whose host vanishes: a connection there is neither made nor refused.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lock_redis::network::{Network, Stream};
use lock_redis::{ClientOptions, RedisConfig};
use lock_testkit_servers::redis::SentinelDeployment;
use tokio::net::TcpStream;

use crate::support::{FAILOVER, PROMPTLY, about_time, configured, eventually, installed, obtain};

/// The longest time that an attempt to connect may take. Failing over usually takes less.
const ATTEMPT: Duration = Duration::from_secs(5);

/// The system's network, but for a host that vanishes.
#[derive(Debug)]
struct Vanishing {
    port: u16,
    has_vanished: AtomicBool,
    attempts: AtomicUsize,
}

#[async_trait]
impl Network for Vanishing {
    async fn connect(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        if port == self.port && self.has_vanished.load(Ordering::SeqCst) {
            self.attempts.fetch_add(1, Ordering::SeqCst);
            return pending().await;
        }
        Ok(Box::new(TcpStream::connect((host, port)).await?))
    }
}

#[test]
fn a_switch_ends_the_attempts_at_the_master_that_has_vanished() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let old = deployment.master().await.unwrap();
        let (port, has_vanished, attempts) = (old.port().unwrap(), AtomicBool::new(false), AtomicUsize::new(0));
        let network = Arc::new(Vanishing { port, has_vanished, attempts });
        let mut options = ClientOptions::default();
        options.op_timeout = ATTEMPT;
        let config = RedisConfig::new(deployment.url()).with_client(options).with_network(network.clone());
        let locks = configured(config).await.unwrap();
        obtain(&locks, "before", PROMPTLY).await.release().await.unwrap();
        network.has_vanished.store(true, Ordering::SeqCst);
        old.kill().unwrap();
        // One for commands and one for pushes.
        eventually("it is dialled", PROMPTLY, async || network.attempts.load(Ordering::SeqCst) == 2).await;
        let again = tokio::spawn(async move {
            obtain(&locks, "after", FAILOVER).await.release().await.unwrap();
            Instant::now()
        });
        deployment.fail_over().await.unwrap();
        let switched = Instant::now();
        let took = again.await.unwrap().saturating_duration_since(switched);
        println!("locks are granted again {took:?} after the switch");
        assert!(took < Duration::from_secs(1), "{took:?} after the switch");
    });
}
