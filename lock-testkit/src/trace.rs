//! Reads what a client tells through `tracing`: its spans, with their values, and whether they were closed.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tracing::dispatcher::{self, Dispatch};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Every span of `lock-core` that began while futures ran under it.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    book: Book,
    dispatch: Dispatch,
}

/// One span.
#[derive(Debug, Clone)]
pub(crate) struct SpanRecord {
    name: &'static str,
    values: HashMap<&'static str, String>,
    closed: bool,
}

impl SpanRecord {
    /// Whether nobody has it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// A value as text; empty if there is none.
    pub(crate) fn value(&self, field: &str) -> &str {
        self.values.get(field).map_or("", String::as_str)
    }
}

/// A second subscriber that lives as long as the process. With a single one, `tracing` judges a span that is met for the
/// first time by the thread that meets it, and remembers for all threads that nobody listens.
static LISTENER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Registry::default()));

/// Keeps `tracing` from judging a span or event by the thread that meets it first.
pub(crate) fn have_no_thread_decide() {
    LazyLock::force(&LISTENER);
}

impl Trace {
    pub(crate) fn new() -> Self {
        have_no_thread_decide();
        let book = Book::default();
        Self { dispatch: Dispatch::new(Registry::default().with(book.clone())), book }
    }

    /// Runs a future so that this is the subscriber that it finds.
    pub(crate) async fn under<F: Future>(&self, future: F) -> F::Output {
        tracing::callsite::rebuild_interest_cache();
        let mut future = pin!(future);
        std::future::poll_fn(|cx| dispatcher::with_default(&self.dispatch, || future.as_mut().poll(cx))).await
    }

    /// Every span of this name, such as `lock.acquire`, in the order in which they began.
    pub(crate) fn spans(&self, name: &str) -> Vec<SpanRecord> {
        self.book.pages().seen.iter().filter(|seen| seen.name == name).cloned().collect()
    }
}

#[derive(Debug, Clone, Default)]
struct Book(Arc<Mutex<Pages>>);

#[derive(Debug, Default)]
struct Pages {
    seen: Vec<SpanRecord>,
    /// The place of each open span in the list; ids are used again.
    open: BTreeMap<u64, usize>,
}

impl Book {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        // Every critical section leaves its data valid after each statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    fn open(&mut self, id: &Id) -> Option<&mut SpanRecord> {
        self.open.get(&id.into_u64()).and_then(|place| self.seen.get_mut(*place))
    }
}

impl<S: Subscriber> Layer<S> for Book {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.is_span() && metadata.target().starts_with("lock_core")
    }

    fn on_new_span(&self, span: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let mut values = Values(HashMap::new());
        span.record(&mut values);
        let mut pages = self.pages();
        let place = pages.seen.len();
        pages.seen.push(SpanRecord { name: span.metadata().name(), values: values.0, closed: false });
        pages.open.insert(id.into_u64(), place);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, _: Context<'_, S>) {
        let mut values = Values(HashMap::new());
        record.record(&mut values);
        if let Some(seen) = self.pages().open(id) {
            seen.values.extend(values.0);
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let mut pages = self.pages();
        if let Some(seen) = pages.open(&id) {
            seen.closed = true;
        }
        pages.open.remove(&id.into_u64());
    }
}

struct Values(HashMap<&'static str, String>);

impl Visit for Values {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
