//! A fault that is injected, from then until it is healed.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::fault::{Direction, LinkFault, Toxic, Trigger};
use super::frames::Frame;
use crate::injected::Proof;
use crate::rng::SeededRng;

#[derive(Debug)]
pub(super) struct Active {
    pub(super) fault: LinkFault,
    healed: watch::Sender<bool>,
    /// Connections on which a toxic that lasts was triggered, or which a cut has ended.
    struck: Mutex<HashSet<u64>>,
    rng: Mutex<SeededRng>,
    /// The number of bytes, requests or pushes counted towards the trigger.
    counted: AtomicU64,
    frames: AtomicU64,
    bytes: AtomicU64,
    connections: AtomicU64,
}

impl Active {
    pub(super) fn new(fault: LinkFault) -> Self {
        Self {
            rng: Mutex::new(SeededRng::new(fault.seed)),
            fault,
            healed: watch::Sender::new(false),
            struck: Mutex::default(),
            counted: AtomicU64::new(0),
            frames: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        }
    }

    pub(super) fn toxic(&self) -> &Toxic {
        &self.fault.toxic
    }

    /// Whether so many bytes that go this way on this connection are hit, whatever they say.
    pub(super) fn hits(&self, way: Direction, connection: u64, bytes: usize) -> bool {
        self.covers(way)
            && match self.fault.trigger {
                // Connections are ended by themselves then, and refused without having any.
                Trigger::Now => !matches!(self.toxic(), Toxic::Fin | Toxic::Reset | Toxic::Refuse),
                Trigger::AfterBytes(threshold) => self.count(bytes) >= threshold,
                Trigger::OnRequest { .. } | Trigger::OnPush { .. } => {
                    self.fault.toxic.lasts() && self.struck().contains(&connection)
                }
            }
    }

    fn covers(&self, way: Direction) -> bool {
        if self.toxic().is_about_requests() { way == Direction::ToServer } else { self.fault.direction.covers(way) }
    }

    /// Counts these bytes, and answers how many there were before.
    fn count(&self, bytes: usize) -> u64 {
        self.counted.fetch_add(bytes as u64, Ordering::Relaxed)
    }

    /// Whether this request triggers the fault. Each request is shown once.
    pub(super) fn is_triggered_by(&self, request: &Frame) -> bool {
        match &self.fault.trigger {
            Trigger::OnRequest { nth, containing } => {
                contains(&request.bytes, containing.as_bytes()) && self.count(1) + 1 == *nth
            }
            _ => false,
        }
    }

    /// Whether this frame, which the server sends without being asked, triggers the fault. Each is shown once.
    pub(super) fn is_triggered_by_push(&self, push: &Frame) -> bool {
        match &self.fault.trigger {
            Trigger::OnPush { nth, containing } => {
                contains(&push.bytes, containing.as_bytes()) && self.count(1) + 1 == *nth
            }
            _ => false,
        }
    }

    /// Whether what a request triggers hits its reply and not the request.
    pub(super) fn is_about_replies(&self) -> bool {
        !self.covers(Direction::ToServer)
    }

    /// Remembers that the fault was triggered on this connection; whether it was not before.
    pub(super) fn strike(&self, connection: u64) -> bool {
        self.struck().insert(connection)
    }

    /// Whether new connections are refused.
    pub(super) fn refuses(&self) -> bool {
        *self.toxic() == Toxic::Refuse
    }

    /// Strikes the connection if this fault ends the connections that it finds; whether it did not before.
    pub(super) fn strike_if_cut(&self, connection: u64) -> bool {
        matches!(self.toxic(), Toxic::Fin | Toxic::Reset)
            && self.fault.trigger == Trigger::Now
            && self.strike(connection)
    }

    /// Returns the time by which this fault delays the next frame.
    pub(super) fn delay(&self) -> Duration {
        match *self.toxic() {
            Toxic::Delay { by, jitter } => by + self.random_up_to(jitter),
            _ => Duration::ZERO,
        }
    }

    fn struck(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.struck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn random_up_to(&self, most: Duration) -> Duration {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).up_to(most)
    }

    pub(super) fn heal(&self) {
        self.healed.send_replace(true);
    }

    pub(super) fn is_healed(&self) -> bool {
        *self.healed.borrow()
    }

    pub(super) async fn healed(&self) {
        // The sender lives as long as this.
        let _ = self.healed.subscribe().wait_for(|healed| *healed).await;
    }

    /// A frame was treated.
    pub(super) fn treated(&self, bytes: usize) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A connection was ended, refused, or kept from being made or read.
    pub(super) fn stopped_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn proof(&self) -> Proof {
        Proof {
            frames: self.frames.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            seen: Vec::new(),
        }
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    wanted.is_empty() || bytes.windows(wanted.len()).any(|window| window == wanted)
}
