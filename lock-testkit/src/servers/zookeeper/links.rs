//! The connections between the servers of an ensemble.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::runtime::{Builder, Runtime};

use crate::servers::relay::Relay;

/// One relay for each server and each other server that it may have as its leader.
///
/// They work in a runtime of their own, so that a test that blocks its thread does not cut them.
#[derive(Debug)]
pub(super) struct Links {
    /// `None` only while this is dropped.
    runtime: Option<Runtime>,
    links: Vec<Link>,
}

#[derive(Debug)]
struct Link {
    follower: usize,
    leader: usize,
    relay: Relay,
}

impl Links {
    /// Between servers that listen to their followers on these ports.
    pub(super) fn new(ports: &[u16]) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("links").enable_all().build()?;
        let mut links = Vec::new();
        for follower in 0..ports.len() {
            for (leader, port) in ports.iter().enumerate().filter(|(leader, _)| *leader != follower) {
                let relay = Relay::new(SocketAddr::from((Ipv4Addr::LOCALHOST, *port)), runtime.handle())?;
                links.push(Link { follower, leader, relay });
            }
        }
        Ok(Self { runtime: Some(runtime), links })
    }

    /// Where this follower finds this leader; `None` from a server to itself.
    pub(super) fn port(&self, follower: usize, leader: usize) -> Option<u16> {
        let link = self.links.iter().find(|link| link.follower == follower && link.leader == leader);
        link.map(|link| link.relay.port())
    }

    pub(super) fn cut(&self, server: usize) {
        self.links
            .iter()
            .filter(|link| link.follower == server || link.leader == server)
            .for_each(|link| link.relay.cut());
    }

    pub(super) fn heal(&self) {
        self.links.iter().for_each(|link| link.relay.heal());
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        // A runtime must not be waited for within another one.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}
