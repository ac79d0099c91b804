//! Models of the locks' protocols, explored state by state by [`stateright`].
//!
//! A model leaves out everything but the protocol: what is asked, what is answered, what gets lost, and who believes what
//! for how long. In exchange *every* order of events is tried, on a small configuration. Each model can be broken on
//! purpose in one line, by a mutant, and each mutant is refuted by a named property, with the shortest sequence of events
//! that shows it; so the properties are known to be able to fail.
//!
//! `cargo test -p models` explores all of them.

pub mod batch;
pub mod handover;
pub mod lease;
pub mod permits;
pub mod queue;
pub mod reply;

mod one_lock;

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model};

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

/// Explores a model, and asserts that all its properties hold.
pub fn explore<M>(model: M)
where
    M: Model + Clone + Debug + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let checker = explorer(model.clone()).spawn_bfs().join();
    println!("{model:?}: {} states", checker.unique_state_count());
    checker.assert_properties();
}

/// Explores a broken model until this property fails, and says how.
pub fn refute<M>(model: M, property: &'static str)
where
    M: Model + Clone + Debug + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let first = HasDiscoveries::AnyOf([property].into());
    let checker = explorer(model.clone()).finish_when(first).spawn_bfs().join();
    let witness = checker.discovery(property).map(|path| path.into_actions());
    println!("{model:?} is refuted by {property:?}: {witness:?}");
    assert!(witness.is_some(), "{model:?} is not refuted by {property:?}");
}

/// Tests that each of these mistakes is refuted by this property of its model.
#[macro_export]
macro_rules! refuted {
    ($($name:ident: $mutant:ident by $property:literal in $model:expr,)+) => {
        $(#[test]
        fn $name() {
            let mut model = $model;
            model.mutant = Some(Mutant::$mutant);
            $crate::refute(model, $property);
        })+
    };
}
