//! A subscriber of `tracing` that panics: what it is told of must cost nobody a lock.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::dispatcher::Dispatch;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};

use crate::trace;

/// A subscriber that panics at each event of some targets. It listens on the thread that made it, until it is dropped.
#[derive(Debug)]
pub struct MistakenSubscriber {
    panics: Arc<AtomicUsize>,
    _listening: DefaultGuard,
}

impl MistakenSubscriber {
    /// Panics from now on at each event of a target that begins so: a crate, or a module of it.
    pub fn at(target: &'static str) -> Self {
        trace::have_no_thread_decide();
        let panics = Arc::<AtomicUsize>::default();
        let dispatch = Dispatch::new(Listener { target, panics: panics.clone() });
        let listening = tracing::dispatcher::set_default(&dispatch);
        tracing::callsite::rebuild_interest_cache();
        Self { panics, _listening: listening }
    }

    /// Returns how often it has panicked.
    pub fn panics(&self) -> usize {
        self.panics.load(Ordering::SeqCst)
    }
}

struct Listener {
    target: &'static str,
    panics: Arc<AtomicUsize>,
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with(self.target)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.panics.fetch_add(1, Ordering::SeqCst);
        // Not by the panic hook, which would count it for a mistake of the backend.
        resume_unwind(Box::new("a mistake in the subscriber, planted by the test"));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn says(target_is_ours: bool) -> bool {
        let told = catch_unwind(|| {
            if target_is_ours {
                tracing::debug!(target: "mistaken::ours", "an event");
            } else {
                tracing::debug!(target: "others", "an event");
            }
        });
        told.is_err()
    }

    #[test]
    fn it_panics_at_events_of_its_targets_until_it_is_dropped() {
        assert!(!says(true));
        let mistaken = MistakenSubscriber::at("mistaken");
        assert!(says(true) && !says(false) && mistaken.panics() == 1);
        drop(mistaken);
        assert!(!says(true));
    }
}
