//! One link, as a test has it.

use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use super::active::Active;
use super::fault::LinkFault;
use super::frames::Protocol;
use super::link::Link;
use super::listener::Listener;
use crate::injected::{Effect, Injected, Proof};

/// A loopback port that leads to a server, and on which faults can be injected. With it, its connections end.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    pub(super) link: Arc<Link>,
    /// Of its own, so that a test that blocks its threads does not hold up the traffic. `None` only while this is dropped.
    runtime: Option<Runtime>,
}

impl Proxy {
    /// A proxy to the server at `host:port`, which need not be up.
    ///
    /// # Errors
    /// If no port or no thread can be had.
    pub fn to(server: impl Into<String>, protocol: Protocol) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("proxy").enable_all().build()?;
        let link = Arc::new(Link::new(server.into(), protocol));
        let listener = {
            let _entered = runtime.enter();
            Listener::new()?
        };
        let port = listener.port();
        runtime.spawn(listener.serve(link.clone()));
        Ok(Self { port, link, runtime: Some(runtime) })
    }

    /// `host:port`, where clients connect to instead of the server.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port of [`address`](Proxy::address).
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Injects a fault, until the guard is dropped. Several can be injected at once.
    pub fn inject(&self, fault: LinkFault) -> Injected<'static> {
        let active = Arc::new(Active::new(fault.clone()));
        self.link.change(|active_ones| active_ones.push(active.clone()));
        Injected::new(fault, OnLink { link: self.link.clone(), active })
    }

    /// Returns how many requests have come from clients so far. (On a link of an [`Opaque`](Protocol::Opaque) protocol,
    /// pieces.)
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.link.requests()
    }

    /// Returns how many connections clients have made so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.link.connections()
    }

    /// Returns how many of them are open.
    #[must_use]
    pub fn open_connections(&self) -> u64 {
        self.link.open_connections()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // A runtime must not be waited for within another one.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

struct OnLink {
    link: Arc<Link>,
    active: Arc<Active>,
}

impl Effect for OnLink {
    fn proof(&self) -> Proof {
        self.active.proof()
    }

    fn heal(&mut self) {
        self.link.change(|faults| faults.retain(|fault| !Arc::ptr_eq(fault, &self.active)));
        self.active.heal();
    }
}
