//! The conformance suite on a real `memcached`, which it starts itself.

mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use harness::{Arrangement, Memcache};
use lock_testkit::{DisposableServer, Missing, ServerFault};
use lock_testkit_servers::memcached::MemcachedServer;

fn main() -> ExitCode {
    lock_testkit::main::<Memcache<MemcachedServer>>()
}

#[async_trait]
impl Arrangement for MemcachedServer {
    const FAULTS: &'static [ServerFault] = &[ServerFault::Restart, ServerFault::Flush];

    async fn disposable_server() -> Result<Box<dyn DisposableServer>, Missing> {
        Ok(Box::new(Self::start_own().await?))
    }
}
