//! The connections between the servers of an ensemble.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lock_testkit_proxy::Injected;
use lock_testkit_proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};

/// One proxy for each server and each other server that it may have as its leader.
#[derive(Debug)]
pub(super) struct LeaderLinks {
    links: Vec<LeaderLink>,
    cuts: Mutex<Vec<Injected<'static>>>,
}

#[derive(Debug)]
struct LeaderLink {
    follower: usize,
    leader: usize,
    proxy: Proxy,
}

impl LeaderLinks {
    /// Between servers that listen to their followers on these ports.
    pub(super) fn new(ports: &[u16]) -> io::Result<Self> {
        let mut links = Vec::new();
        for follower in 0..ports.len() {
            for (leader, port) in ports.iter().enumerate().filter(|(leader, _)| *leader != follower) {
                // What servers say to each other is another protocol than what clients speak.
                let proxy = Proxy::to(format!("127.0.0.1:{port}"), Protocol::Opaque)?;
                links.push(LeaderLink { follower, leader, proxy });
            }
        }
        Ok(Self { links, cuts: Mutex::default() })
    }

    /// The port at which this follower finds this leader; `None` from a server to itself.
    pub(super) fn port(&self, follower: usize, leader: usize) -> Option<u16> {
        let link = self.links.iter().find(|link| link.follower == follower && link.leader == leader);
        link.map(|link| link.proxy.port())
    }

    pub(super) fn cut(&self, server: usize) {
        let its_own = self.links.iter().filter(|link| link.follower == server || link.leader == server);
        let cuts = its_own.map(|link| link.proxy.inject(LinkFault::new(Toxic::Hold, Direction::Both)));
        self.cuts().extend(cuts);
    }

    /// Holds what one server says to another.
    pub(super) fn hold(&self, from: usize, to: usize) -> Vec<Injected<'static>> {
        let said = |link: &LeaderLink| match (link.follower, link.leader) {
            ends if ends == (from, to) => Some(Direction::ToServer),
            ends if ends == (to, from) => Some(Direction::ToClient),
            _ => None,
        };
        let said = self.links.iter().filter_map(|link| Some((link, said(link)?)));
        said.map(|(link, direction)| link.proxy.inject(LinkFault::new(Toxic::Hold, direction))).collect()
    }

    pub(super) fn heal(&self) {
        self.cuts().clear();
    }

    fn cuts(&self) -> MutexGuard<'_, Vec<Injected<'static>>> {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
