//! Replies that go astray. Who meets one asks again, so that no error comes out; but the client tells it in the log.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static TOLD: AtomicU64 = AtomicU64::new(0);

/// Listens to the log of this process from now on.
pub(crate) fn watch() {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| tracing::subscriber::set_global_default(Watch).unwrap());
}

/// The number of replies that the clients of this process have met since then that belong to other requests. They tell
/// nothing else as an error.
pub(crate) fn replies() -> u64 {
    TOLD.load(Ordering::Relaxed)
}

/// Counts errors.
struct Watch;

impl Subscriber for Watch {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR && metadata.target().starts_with("lock_redis")
    }

    fn event(&self, _: &Event<'_>) {
        TOLD.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
