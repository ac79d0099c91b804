//! What can befall the links between workers and their server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_testkit::Broken;
use lock_testkit::faults::Injected;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};

use crate::faults::Trouble;

/// By when traffic has met a fault: workers ask all the time.
const PATIENCE: Duration = Duration::from_secs(2);

/// The way of all workers to their server.
pub(crate) struct Link(Arc<Proxy>);

impl Link {
    /// A way to the server at `host:port`.
    pub(crate) fn to(server: &str, protocol: Protocol) -> Result<Self, Broken> {
        Ok(Self(Arc::new(Proxy::to(server, protocol)?)))
    }

    /// `host:port`, where workers connect to instead.
    pub(crate) fn address(&self) -> String {
        self.0.address()
    }

    /// What can go wrong on it, by this chance.
    pub(crate) fn troubles(&self, seed: u64) -> Vec<Box<dyn Trouble>> {
        let (by, jitter) = (Duration::from_millis(20), Duration::from_millis(200));
        let faults = [
            ("slow-link", LinkFault::new(Toxic::Delay { by, jitter }, Direction::Both)),
            ("hold-link", LinkFault::new(Toxic::Hold, Direction::Both)),
            ("lose-requests", LinkFault::new(Toxic::Blackhole, Direction::ToServer)),
            ("lose-replies", LinkFault::new(Toxic::Blackhole, Direction::ToClient)),
            ("cut-reply", LinkFault::new(Toxic::CutAfter { bytes: 3 }, Direction::ToClient).on_request(1, "")),
            ("reset-links", LinkFault::new(Toxic::Reset, Direction::Both)),
        ];
        let trouble = |(name, fault): (_, LinkFault)| -> Box<dyn Trouble> {
            Box::new(Troubled { link: self.0.clone(), name, fault: fault.with_seed(seed), injected: None })
        };
        faults.into_iter().map(trouble).collect()
    }
}

/// A link on which something goes wrong.
struct Troubled {
    link: Arc<Proxy>,
    name: &'static str,
    fault: LinkFault,
    injected: Option<Injected<'static>>,
}

#[async_trait]
impl Trouble for Troubled {
    fn name(&self) -> &'static str {
        self.name
    }

    /// The proof is what of the workers' traffic was hit.
    async fn begin(&mut self) -> Result<Option<String>, Broken> {
        let injected = self.injected.insert(self.link.inject(self.fault.clone()));
        let proof = injected.applied(PATIENCE).await.ok();
        Ok(proof.map(|proof| format!("{} frames and {} connections were hit", proof.frames, proof.connections)))
    }

    async fn heal(&mut self) -> Result<(), Broken> {
        self.injected = None;
        Ok(())
    }
}
