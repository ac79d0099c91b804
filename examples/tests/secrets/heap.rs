//! Everything that is told: events and spans of every crate of the process at every level, the names and labels of every
//! metric, every error with its causes as text and as `Debug`, and the `Debug` of what is shown.

use std::error::Error as _;
use std::fmt::{self, Debug, Write as _};
use std::sync::{Mutex, PoisonError};

use lock_core::Error;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

static HEAP: Mutex<String> = Mutex::new(String::new());

pub(crate) fn told(what: &str) {
    let mut heap = HEAP.lock().unwrap_or_else(PoisonError::into_inner);
    heap.push_str(what);
    heap.push('\n');
}

/// Its `Debug`.
pub(crate) fn shown(what: &dyn Debug) {
    told(&format!("{what:?} {what:#?}"));
}

/// An error, if it is one, with its causes. What succeeds is left alone.
pub(crate) fn failed<T>(outcome: Result<T, Error>) -> Option<T> {
    let error = match outcome {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let chain = chain(&error);
    chain.iter().for_each(|said| told(said));
    shown(&error);
    says_nothing_twice(&chain);
    None
}

/// The text of an error, and then those of its causes.
pub(crate) fn chain(error: &Error) -> Vec<String> {
    let mut said = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        shown(&error);
        said.push(error.to_string());
        cause = error.source();
    }
    said
}

/// Asserts that the whole chain tells each cause once.
pub(crate) fn says_nothing_twice(chain: &[String]) {
    for (place, said) in chain.iter().enumerate() {
        let others = chain.iter().enumerate().filter(|(other, _)| *other != place);
        for (_, other) in others {
            assert!(!other.contains(said.as_str()), "said twice: {chain:#?}");
        }
    }
}

/// The lines with one of these in them, of so many.
pub(crate) fn lines_with(secrets: &[&str]) -> (usize, Vec<String>) {
    let heap = HEAP.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(heap.contains("lock.acquire"), "no span was heard");
    let lines = heap.lines().filter(|line| secrets.iter().any(|secret| line.contains(secret)));
    (heap.len(), lines.map(str::to_owned).collect())
}

/// Hears every span and event, and every name and label of a metric, from now on.
pub(crate) fn listen() {
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Listener)).expect("it is the only one");
    metrics::set_global_recorder(Listener).map_err(|error| error.to_string()).expect("it is the only one");
}

struct Listener;

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields(format!("{} ", event.metadata().target()));
        event.record(&mut fields);
        told(&fields.0);
    }

    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut fields = Fields(format!("{} ", span.metadata().name()));
        span.record(&mut fields);
        told(&fields.0);
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut fields = Fields(String::new());
        values.record(&mut fields);
        told(&fields.0);
    }
}

impl Recorder for Listener {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        told(&key.to_string());
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        told(&key.to_string());
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        told(&key.to_string());
        Histogram::noop()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}
