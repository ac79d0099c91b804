//! One memcached: the bare client crate, ours, and a lock as users of pymemcache write it.

use std::time::Duration;

use bench_support::Outcome;
use lock_core::{ClientOptions, LeaseOptions};
use lock_memcached::{MemcachedConfig, MemcachedLocks};
use lock_testkit_servers::memcached::MemcachedServer;
use memcache::exp::{Arithmetic, AsyncMetaClient, Delete};

use crate::Field;
use crate::contender::{Contender, Local, Turn};
use crate::foreign::Foreign;
use crate::{ours, processes};

/// No item has this CAS number.
const NONE: u64 = i64::MAX.unsigned_abs();
/// Short, so that a new server's quarantine is soon over.
const LEASE: Duration = Duration::from_secs(1);

pub(crate) const SERVER: &str = "memcached";

pub(crate) async fn field() -> Outcome<Field> {
    let server = MemcachedServer::start_own().await?;
    let address = server.address().to_owned();
    let mut contenders = processes::also(SERVER, std::slice::from_ref(&address), local(&address).await?);
    let python =
        Foreign::start("PEER_PYMEMCACHE", &[&address], "`add` and `cas` by pymemcache 4.0.0", false, LEASE).await?;
    contenders.extend(python);
    Ok(Field { server: Box::new(server), title: "On one memcached", contenders })
}

/// The contenders of this program.
pub(crate) async fn local(address: &str) -> Outcome<Vec<Box<dyn Contender>>> {
    let mut client = ClientOptions::default();
    client.lease = LeaseOptions::new(LEASE);
    let config = MemcachedConfig::new(format!("memcached://{address}")).with_prefix("peers");
    let locks = MemcachedLocks::connect_with(config.with_client(client).with_longest_lease(LEASE)).await?;
    locks.mutex("first").lock().await?.release().await?;
    let mut contenders = vec![floor(address)];
    contenders.extend(ours::kinds("lock-memcached", &locks.into()));
    Ok(contenders)
}

fn floor(address: &str) -> Box<dyn Contender> {
    let address = address.to_owned();
    Local::boxed("floor: claim + delete by CAS, a connection a task; looks for hand-overs", false, move |_, key| {
        Floor { address: address.clone(), client: None, key }
    })
}

/// A claim and a deletion by CAS number; asked again at once while somebody else has it.
struct Floor {
    address: String,
    client: Option<AsyncMetaClient>,
    key: String,
}

impl Turn for Floor {
    async fn go(&mut self, holds: impl Fn() + Send + Sync) -> Outcome {
        let client = match &self.client {
            Some(client) => client,
            None => {
                let builder = AsyncMetaClient::builder().max_connections(Some(1)).max_idle(1);
                self.client.insert(builder.connect_async(&*self.address).await?)
            }
        };
        loop {
            let claim = Arithmetic::new(&self.key)
                .compare_cas(NONE)
                .return_cas()
                .delta(0)
                .initial(1_234_567_890_123_456_789, 12);
            if let Some(cas) = client.run(claim).await?.item.cas {
                holds();
                client.run(Delete::new(&self.key).compare_cas(cas)).await?;
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
