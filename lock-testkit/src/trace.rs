//! Reads what a client tells through `tracing`: its spans, with their values, and whether they were closed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::dispatcher::{self, Dispatch};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_core::span::Current;
use tracing::{Event, Metadata, Subscriber};

thread_local! {
    /// The spans that this thread is in, the innermost last.
    static ENTERED: RefCell<Vec<Id>> = const { RefCell::new(Vec::new()) };
}

/// Every span of `lock-core` that began while futures ran under it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace(Arc<Book>);

#[derive(Debug, Default)]
struct Book {
    last: AtomicU64,
    spans: Mutex<HashMap<u64, Seen>>,
}

/// One span.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    metadata: &'static Metadata<'static>,
    /// Its values as text, by field.
    pub(crate) values: HashMap<&'static str, String>,
    handles: u32,
}

impl Seen {
    /// Whether nobody has it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.handles == 0
    }

    /// A value as text; empty if there is none.
    pub(crate) fn value(&self, field: &str) -> &str {
        self.values.get(field).map_or("", String::as_str)
    }
}

impl Trace {
    /// Runs a future so that this is the subscriber that it finds.
    pub(crate) async fn under<F: Future>(&self, future: F) -> F::Output {
        let dispatch = Dispatch::new(self.clone());
        let mut future = pin!(future);
        std::future::poll_fn(|cx| dispatcher::with_default(&dispatch, || future.as_mut().poll(cx))).await
    }

    /// Every span of this name, such as `lock.acquire`, in the order in which they began.
    pub(crate) fn spans(&self, name: &str) -> Vec<Seen> {
        let spans = self.seen();
        let mut found: Vec<_> = spans.iter().filter(|(_, seen)| seen.metadata.name() == name).collect();
        found.sort_by_key(|(id, _)| **id);
        found.into_iter().map(|(_, seen)| seen.clone()).collect()
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<u64, Seen>> {
        // Every critical section leaves its data valid after each statement.
        self.0.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscriber for Trace {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("lock_core")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.0.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut values = Values::default();
        span.record(&mut values);
        self.seen().insert(id, Seen { metadata: span.metadata(), values: values.0, handles: 1 });
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut more = Values::default();
        values.record(&mut more);
        if let Some(seen) = self.seen().get_mut(&span.into_u64()) {
            seen.values.extend(more.0);
        }
    }

    fn clone_span(&self, id: &Id) -> Id {
        if let Some(seen) = self.seen().get_mut(&id.into_u64()) {
            seen.handles += 1;
        }
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut spans = self.seen();
        let Some(seen) = spans.get_mut(&id.into_u64()) else { return false };
        seen.handles = seen.handles.saturating_sub(1);
        seen.is_closed()
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(span.clone()));
    }

    fn exit(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| {
            if let Some(place) = entered.iter().rposition(|id| id == span) {
                entered.remove(place);
            }
        });
    }

    fn current_span(&self) -> Current {
        let id = ENTERED.with_borrow(|entered| entered.last().cloned());
        let metadata = id.as_ref().and_then(|id| self.seen().get(&id.into_u64()).map(|seen| seen.metadata));
        match (id, metadata) {
            (Some(id), Some(metadata)) => Current::new(id, metadata),
            _ => Current::none(),
        }
    }
}

#[derive(Default)]
struct Values(HashMap<&'static str, String>);

impl Visit for Values {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
