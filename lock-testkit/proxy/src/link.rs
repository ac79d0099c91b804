//! One link.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::active::Active;
use super::fault::LinkFault;
use super::frames::Protocol;
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
        self.link.requests.load(Ordering::Relaxed)
    }

    /// Returns how many connections clients have made so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.link.connections.load(Ordering::Relaxed)
    }

    /// Returns how many of them are open.
    #[must_use]
    pub fn open_connections(&self) -> u64 {
        self.link.open.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // A runtime must not be waited for within another one.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// The state that the connections of a link share.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) server: String,
    pub(super) protocol: Protocol,
    faults: Mutex<Vec<Arc<Active>>>,
    /// Told of every fault that is injected or healed.
    changed: watch::Sender<()>,
    requests: AtomicU64,
    connections: AtomicU64,
    open: AtomicU64,
}

impl Link {
    fn new(server: String, protocol: Protocol) -> Self {
        Self {
            server,
            protocol,
            faults: Mutex::default(),
            changed: watch::Sender::new(()),
            requests: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
        }
    }

    /// The faults that are injected now.
    pub(super) fn faults(&self) -> Vec<Arc<Active>> {
        self.locked().clone()
    }

    /// Wakes whenever that changes.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn change(&self, how: impl FnOnce(&mut Vec<Arc<Active>>)) {
        how(&mut self.locked());
        self.changed.send_replace(());
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Arc<Active>>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of a new connection, which is open until [`count_end`](Link::count_end).
    ///
    /// A fault that ends the connections that it finds does not find it if it was injected before, and finds it if it is
    /// injected by somebody who has seen it counted.
    pub(super) fn count_connection(&self) -> u64 {
        let faults = self.locked();
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        for fault in faults.iter() {
            fault.strike_if_cut(number);
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        number
    }

    pub(super) fn count_end(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
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
