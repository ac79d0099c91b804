//! Models of the locks' protocols, explored state by state by [`stateright`].
//!
//! A model leaves out everything but the protocol: what is asked, what is answered, what gets lost, and who believes what
//! for how long. In exchange *every* order of events is tried, on a small configuration. Each model can be broken on
//! purpose in one line, by a mutant, and each mutant is refuted by a named property, with the shortest sequence of events
//! that shows it; so the properties are known to be able to fail.
//!
//! `cargo test -p models` explores all of them.

pub mod handover;
pub mod lease;
pub mod permits;
pub mod queue;

use std::hash::Hash;

use stateright::{CheckerBuilder, Model};

/// An exploration of the model, on two threads that go behind whatever has a deadline: only its end counts, not its time.
pub fn explorer<M>(model: M) -> CheckerBuilder<M>
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Send + Sync + 'static,
    M::Action: Send + Sync,
{
    // Refused at worst, which costs others time.
    let _ = rustix::process::nice(15);
    model.checker().threads(2)
}
