//! Faults of the links between workers and their servers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_testkit::HarnessError;
use lock_testkit::faults::{Injected, Proof};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};

use crate::faults::Fault;

/// The time by which traffic has met a fault: workers ask all the time.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The ways of all workers, or of one, to their servers: a proxy to each.
pub(crate) struct WorkerLinks {
    proxies: Arc<[Proxy]>,
    url: String,
}

impl WorkerLinks {
    /// Ways to the servers that this URL names; this is their port if it does not say another.
    pub(crate) fn to(url: &str, port: u16, protocol: Protocol) -> Result<Self, HarnessError> {
        let servers = servers_in(url);
        let with_port =
            |server: &str| if server.contains(':') { server.to_owned() } else { format!("{server}:{port}") };
        let proxies = servers.split(',').map(|server| Proxy::to(with_port(server), protocol));
        let proxies = proxies.collect::<io::Result<Vec<_>>>()?;
        let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
        Ok(Self { url: url.replacen(servers, &addresses.join(","), 1), proxies: proxies.into() })
    }

    /// The URL that workers connect to instead.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The faults that can hit them, with this seed for their chance.
    pub(crate) fn faults(&self, seed: u64) -> Vec<Box<dyn Fault>> {
        self.faults_of("server", seed)
    }

    /// The faults that can hit them, as those of this target.
    pub(crate) fn faults_of(&self, target: &str, seed: u64) -> Vec<Box<dyn Fault>> {
        let (by, jitter) = (Duration::from_millis(20), Duration::from_millis(200));
        let faults = [
            ("slow-link", LinkFault::new(Toxic::Delay { by, jitter }, Direction::Both)),
            ("hold-link", LinkFault::new(Toxic::Hold, Direction::Both)),
            ("lose-requests", LinkFault::new(Toxic::Blackhole, Direction::ToServer)),
            ("lose-replies", LinkFault::new(Toxic::Blackhole, Direction::ToClient)),
            ("cut-reply", LinkFault::new(Toxic::CutAfter { bytes: 3 }, Direction::ToClient).on_request(1, "")),
            ("reset-links", LinkFault::new(Toxic::Reset, Direction::Both)),
        ];
        let boxed = |(name, fault): (_, LinkFault)| -> Box<dyn Fault> {
            Box::new(FaultyLinks {
                links: self.proxies.clone(),
                target: target.to_owned(),
                name,
                fault: fault.with_seed(seed),
                injected: Vec::new(),
            })
        };
        faults.into_iter().map(boxed).collect()
    }
}

/// The part of a URL between the scheme, with the credentials, and the path.
fn servers_in(url: &str) -> &str {
    let authority = url.split('/').nth(2).unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

/// Links on which something goes wrong.
struct FaultyLinks {
    links: Arc<[Proxy]>,
    target: String,
    name: &'static str,
    fault: LinkFault,
    injected: Vec<Injected<'static>>,
}

impl FaultyLinks {
    /// Returns what of the workers' traffic was hit, on whichever link.
    fn proof(&self) -> Option<String> {
        let proofs: Vec<_> = self.injected.iter().map(Injected::proof).filter(Proof::is_given).collect();
        let frames: u64 = proofs.iter().map(|proof| proof.frames).sum();
        let connections: u64 = proofs.iter().map(|proof| proof.connections).sum();
        (!proofs.is_empty()).then(|| format!("{frames} frames and {connections} connections were hit"))
    }
}

#[async_trait]
impl Fault for FaultyLinks {
    fn name(&self) -> &'static str {
        self.name
    }

    fn target(&self) -> &str {
        &self.target
    }

    fn is_on_links(&self) -> bool {
        true
    }

    async fn begin(&mut self) -> Result<Option<String>, HarnessError> {
        self.injected = self.links.iter().map(|link| link.inject(self.fault.clone())).collect();
        let hit = async {
            while self.proof().is_none() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        // Without proof the verdict is unknown.
        let _ = tokio::time::timeout(PATIENCE, hit).await;
        Ok(self.proof())
    }

    async fn heal(&mut self) -> Result<(), HarnessError> {
        self.injected.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_led_through_proxies() {
        for (url, servers) in [
            ("redis://me:secret@host:6379/2", "host:6379"),
            ("zk://a:2181,b:2182/chroot", "a:2181,b:2182"),
            ("memcached://host/", "host"),
        ] {
            assert_eq!(servers_in(url), servers);
            let links = WorkerLinks::to(url, 1, Protocol::Opaque).unwrap();
            let addresses: Vec<_> = links.proxies.iter().map(Proxy::address).collect();
            assert_eq!(links.url(), url.replace(servers, &addresses.join(",")));
        }
    }
}
