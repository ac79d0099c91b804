//! The spans of an acquisition, and of clean-up in the background.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use lock_core::LossReason;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

use crate::lab::{Fault, Lab};
use crate::runtimes::soon;

/// The spans of this thread, with what they were told.
#[derive(Debug, Clone, Default)]
struct Spans(Arc<Mutex<Vec<(&'static str, Values)>>>);

#[derive(Debug, Clone, Default)]
struct Values(HashMap<&'static str, String>);

impl Spans {
    /// Listens on this thread until the guard is dropped.
    ///
    /// While there is only one subscriber, `tracing` keeps for all threads what the first thread that comes to a span is told;
    /// on a thread of another test that is that nobody listens. With a second one it asks both, whichever thread it is.
    fn listen() -> (Self, DefaultGuard) {
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(Self::default()));
        let spans = Self::default();
        let listening = tracing::subscriber::set_default(spans.clone());
        (spans, listening)
    }

    /// Panics at every loss from now on.
    fn panic_at_losses(&self) {
        self.0.lock().unwrap().push(("panics", Values::default()));
    }

    /// Panics whenever it hears of this from now on: `new`, `enter`, `exit`, `record` or `close` of a span.
    fn panic_at(&self, what: &'static str) {
        self.0.lock().unwrap().push((what, Values::default()));
    }

    fn hears_of(&self, what: &str) {
        assert!(self.values(what, "").is_empty(), "a mistake in the subscriber, planted by the test");
    }

    /// The last value of this field in each span of this name.
    fn values(&self, name: &str, field: &str) -> Vec<String> {
        let spans = self.0.lock().unwrap();
        let of_name = spans.iter().filter(|(of, _)| *of == name);
        of_name.map(|(_, values)| values.0.get(field).cloned().unwrap_or_default()).collect()
    }
}

impl Visit for Values {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}").replace('"', ""));
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("lock_core")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.hears_of("new");
        let mut values = Values::default();
        span.record(&mut values);
        let mut spans = self.0.lock().unwrap();
        spans.push((span.metadata().name(), values));
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.hears_of("record");
        let place = usize::try_from(span.into_u64()).unwrap() - 1;
        values.record(&mut self.0.lock().unwrap()[place].1);
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let is_planted = *event.metadata().level() == Level::WARN && !self.values("panics", "").is_empty();
        assert!(!is_planted, "a mistake in the subscriber, planted by the test");
    }

    fn enter(&self, _span: &Id) {
        self.hears_of("enter");
    }

    fn exit(&self, _span: &Id) {
        self.hears_of("exit");
    }

    fn try_close(&self, _span: Id) -> bool {
        self.hears_of("close");
        true
    }
}

#[tokio::test]
async fn an_acquisition_tells_how_it_ended() {
    let lab = Lab::new();
    let (locks, other) = (lab.connect(), lab.store.connect());
    let held = other.mutex("a").lock().await.unwrap();
    let (spans, _listening) = Spans::listen();
    assert!(locks.mutex("a").try_lock().await.unwrap().is_none());
    let lock = locks.mutex("a");
    let waiting = tokio::spawn(async move { lock.lock().await });
    lab.line.asked_times("lock", 1).await;
    lab.clock.advance(Duration::from_millis(700));
    held.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(spans.values("lock.acquire", "wait"), ["try", "unlimited"]);
    assert_eq!(spans.values("lock.acquire", "outcome"), ["refused", "granted"]);
    assert_eq!(spans.values("lock.acquire", "waited"), ["", "700ms"]);
    assert_eq!(spans.values("lock.acquire", "token")[1], guard.fencing_token().unwrap().as_u64().to_string());
}

#[tokio::test]
async fn a_try_that_is_asked_for_once_more_has_a_span_for_each_of_its_grants() {
    let lab = Lab::new();
    let locks = lab.connect();
    let lock = locks.mutex("a");
    drop(lock.lock().await.unwrap());
    let (spans, _listening) = Spans::listen();
    let guard = lock.try_lock().await.unwrap().unwrap();
    assert_eq!(spans.values("lock.acquire", "outcome"), ["refused", "granted"]);
    assert_eq!(spans.values("lock.acquire", "grant")[1], guard.grant_id().to_string());
}

#[tokio::test]
async fn what_is_left_to_the_background_tells_what_became_of_it() {
    let (spans, _listening) = Spans::listen();
    let lab = Lab::new();
    let locks = lab.connect();
    drop(locks.mutex("released").lock().await.unwrap());
    let mut permit = locks.semaphore("parts", 2).try_acquire_many(2).await.unwrap().unwrap();
    lab.line.set(Fault::LosesAnswers);
    locks.mutex("cancelled").try_lock().await.unwrap_err();
    permit.release_some(1).await.unwrap_err();
    lab.line.asked_times("cancel", 1).await;
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(2)).await;
    locks.close().await.unwrap();
    assert_eq!(spans.values("lock.reap", "job"), ["release", "cancel", "shrink"]);
    assert_eq!(spans.values("lock.reap", "outcome"), ["done", "done", "done"]);
    assert_eq!(spans.values("lock.reap", "tries")[1], "2");
    let other = lab.connect();
    let guard = other.mutex("given up").lock().await.unwrap();
    lab.line.set(Fault::Down);
    drop(guard);
    lab.pass(Duration::from_secs(14)).await;
    assert_eq!(lab.line.forgotten().len(), 1);
    assert_eq!(spans.values("lock.reap", "outcome")[3], "given up");
}

#[tokio::test]
async fn a_subscriber_that_panics_at_a_loss_keeps_nobody_from_being_told() {
    let (spans, _listening) = Spans::listen();
    let lab = Lab::new();
    let locks = lab.connect();
    let (kept, lost) = (locks.mutex("kept").lock().await.unwrap(), locks.mutex("lost").lock().await.unwrap());
    spans.panic_at_losses();
    lab.store.lose("lost");
    lab.pass(Duration::from_secs(4)).await;
    assert_eq!(soon("the loss is told", lost.lost()).await, LossReason::Taken);
    lab.pass(Duration::from_secs(20)).await;
    assert!(kept.is_held(), "nobody renews any more");
}

#[tokio::test]
async fn a_subscriber_that_panics_at_every_span_ends_neither_renewals_nor_clean_up() {
    for what in ["new", "enter", "exit", "record", "close"] {
        let (spans, _listening) = Spans::listen();
        let lab = Lab::new();
        let locks = lab.connect();
        let (kept, dropped) = (locks.mutex("kept").lock().await.unwrap(), locks.mutex("dropped").lock().await.unwrap());
        spans.panic_at(what);
        drop(dropped);
        // Nobody asks the guard meanwhile, which would start the task again.
        lab.pass(Duration::from_secs(20)).await;
        assert_eq!(lab.store.used(), 1, "{what}: nobody releases what was dropped");
        assert!(kept.is_held(), "{what}: nobody renews any more");
        kept.release().await.unwrap();
    }
}
