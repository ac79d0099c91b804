//! The links of one client under test: a proxy to each server.

use std::io;
use std::time::Duration;

use crate::failure::{OrUnknown, Verdict};
use crate::faults::Injected;
use crate::harness::Linked;
use crate::proxy::{LinkFault, Proxy, Toxic};
use crate::time::{eventually, promptly};

#[derive(Debug)]
pub(crate) struct Links {
    proxies: Vec<Proxy>,
    addresses: Vec<String>,
    are_shards: bool,
}

impl Links {
    pub(crate) fn to(servers: &dyn Linked) -> io::Result<Self> {
        let proxies = servers.servers().into_iter().map(|server| Proxy::to(server, servers.protocol()));
        let proxies: Vec<_> = proxies.collect::<Result<_, _>>()?;
        let addresses = proxies.iter().map(Proxy::address).collect();
        Ok(Self { proxies, addresses, are_shards: servers.are_shards() })
    }

    /// The addresses at which the client finds the servers.
    pub(crate) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Injects the fault on every link. It has to show on most of those that are in use: a client may have connections
    /// to some servers only, and need not ask the last one when a majority has failed it. Ports are closed without its doing,
    /// one after the other: that has to show on all of them. Of shards one has the lock.
    pub(crate) fn inject(&self, fault: &LinkFault) -> Trouble {
        let used = self.proxies.iter().filter(|proxy| proxy.open_connections() > 0).count();
        let links = self.proxies.iter().map(|proxy| proxy.inject(fault.clone()));
        let needed = match fault.toxic {
            Toxic::Refuse => self.proxies.len(),
            _ if self.are_shards => 1,
            _ => used / 2 + 1,
        };
        Trouble { links: links.collect(), needed }
    }

    /// Whether the client has a connection.
    pub(crate) fn are_in_use(&self) -> bool {
        self.proxies.iter().any(|proxy| proxy.open_connections() > 0)
    }

    /// Waits until the client has a connection again.
    pub(crate) async fn are_used(&self) -> Verdict {
        let used = async || Ok(self.are_in_use().then_some(()));
        eventually("the client connects again", promptly(), used).await
    }
}

/// A fault on all links of a client. Healed on drop.
#[derive(Debug)]
pub(crate) struct Trouble {
    links: Vec<Injected<'static>>,
    /// The number of links on which it has to show.
    needed: usize,
}

impl Trouble {
    /// Waits until it shows.
    pub(crate) async fn applied(&self) -> Verdict {
        if !self.applied_within(promptly()).await {
            self.links.iter().map(|link| link.proven()).collect::<Result<Vec<_>, _>>().or_unknown()?;
        }
        Ok(())
    }

    /// Whether it shows within this time.
    pub(crate) async fn applied_within(&self, time: Duration) -> bool {
        let shows = async || Ok((self.shown() >= self.needed).then_some(()));
        eventually("the fault is applied", time, shows).await.is_ok()
    }

    /// Ends it, and proves that it was applied.
    pub(crate) fn heal(self) -> Verdict {
        let needed = self.needed;
        let proofs: Vec<_> = self.links.into_iter().map(Injected::heal).collect();
        let unproven = proofs.iter().filter(|proof| proof.is_err()).count();
        if proofs.len() - unproven < needed {
            proofs.into_iter().collect::<Result<Vec<_>, _>>().or_unknown()?;
        }
        Ok(())
    }

    /// Returns how many connections it has ended, or kept from being made.
    pub(crate) fn connections(&self) -> u64 {
        self.links.iter().map(|link| link.proof().connections).sum()
    }

    /// Returns on how many links it shows.
    fn shown(&self) -> usize {
        self.links.iter().filter(|link| link.proof().is_given()).count()
    }
}
