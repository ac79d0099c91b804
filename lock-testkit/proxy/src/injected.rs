//! A fault that was injected: heals on drop, and proves that it was applied.

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The pause between two looks at what a fault has done.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The effect of a fault, from its injection on: what [`Injected`] is made of.
pub trait Effect: Send + Sync {
    /// Returns the evidence so far that the fault was applied.
    fn proof(&self) -> Proof;

    /// Undoes what can be undone. Called once.
    fn heal(&mut self);
}

/// Evidence that a fault was applied: counts of what it did, and what was seen of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Proof {
    /// Frames that were delayed, held, swallowed, cut, split or doubled.
    pub frames: u64,
    /// The bytes of those frames.
    pub bytes: u64,
    /// Connections that were ended, refused, or kept from being made or read.
    pub connections: u64,
    /// Other observations, such as `process 4711 is stopped`.
    pub seen: Vec<String>,
}

impl Proof {
    /// Something that was seen.
    #[must_use]
    pub fn of(seen: impl Into<String>) -> Self {
        Self { seen: vec![seen.into()], ..Self::default() }
    }

    /// Whether there is any.
    #[must_use]
    pub fn is_given(&self) -> bool {
        *self != Self::default()
    }
}

/// A fault that was not applied: what was tested under it is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unproven(String);

impl fmt::Display for Unproven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no proof that the fault was applied: {}", self.0)
    }
}

/// A fault that goes on. Healed when this is dropped.
#[must_use = "the fault is healed when this is dropped"]
pub struct Injected<'a> {
    /// The fault in words.
    fault: String,
    /// `None` once healed.
    effect: Option<Box<dyn Effect + 'a>>,
}

impl<'a> Injected<'a> {
    /// A fault, in words, and its effect.
    pub fn new(fault: impl fmt::Display, effect: impl Effect + 'a) -> Self {
        Self { fault: fault.to_string(), effect: Some(Box::new(effect)) }
    }

    /// Returns the fault that was injected, in words.
    #[must_use]
    pub fn fault(&self) -> &str {
        &self.fault
    }

    /// Returns the evidence so far that it was applied.
    #[must_use]
    pub fn proof(&self) -> Proof {
        self.effect.as_ref().map(|effect| effect.proof()).unwrap_or_default()
    }

    /// Returns the evidence that it was applied.
    ///
    /// # Errors
    /// [`Unproven`] if nothing does so far.
    pub fn proven(&self) -> Result<Proof, Unproven> {
        Some(self.proof()).filter(Proof::is_given).ok_or_else(|| Unproven(self.fault.clone()))
    }

    /// Waits until the fault has been applied, such as that the request has come that triggers it.
    ///
    /// # Errors
    /// [`Unproven`] if that is not so within this time.
    pub async fn applied(&self, within: Duration) -> Result<Proof, Unproven> {
        let began = Instant::now();
        loop {
            let proven = self.proven();
            if proven.is_ok() || began.elapsed() >= within {
                return proven;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Ends the fault, and proves that it was applied.
    ///
    /// # Errors
    /// [`Unproven`] if it was not; healed it is.
    pub fn heal(mut self) -> Result<Proof, Unproven> {
        let Some(mut effect) = self.effect.take() else { return Err(Unproven(self.fault.clone())) };
        effect.heal();
        Some(effect.proof()).filter(Proof::is_given).ok_or_else(|| Unproven(self.fault.clone()))
    }
}

impl Drop for Injected<'_> {
    fn drop(&mut self) {
        self.effect.iter_mut().for_each(|effect| effect.heal());
    }
}

impl fmt::Debug for Injected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injected").field("fault", &self.fault).field("proof", &self.proof()).finish_non_exhaustive()
    }
}
