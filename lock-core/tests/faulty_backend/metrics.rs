//! The counters of acquisitions that fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::multi::{lock_all, try_lock_all};
use lock_core::{Client, ErrorKind, Owner};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use crate::lab::{Fault, Faulty, Lab, eventually};

/// The counters that were raised, by their names and kinds.
#[derive(Debug, Clone, Default)]
struct Counters(Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>);

impl Counters {
    /// A client that counts here.
    fn connect(&self, lab: &Lab) -> Client<Faulty> {
        metrics::with_local_recorder(self, || lab.connect())
    }

    /// The counters of errors and refusals that are not zero, without the label of the backend.
    fn failures(&self) -> BTreeMap<String, u64> {
        let counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counters
            .iter()
            .map(|(name, count)| (name.clone(), count.load(Ordering::Relaxed)))
            .filter(|(_, n)| *n > 0)
            .collect()
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let name = match (key.name(), key.labels().find(|label| label.key() == "kind")) {
            ("lock_acquire_errors_total", Some(kind)) => kind.value().to_owned(),
            ("lock_refusals_total", None) => "refusals".to_owned(),
            _ => return Counter::noop(),
        };
        let count = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default().clone();
        Counter::from_arc(count)
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

fn only(name: &str, count: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([(name.to_owned(), count)])
}

#[tokio::test]
async fn an_acquisition_with_an_argument_that_is_refused_is_counted() {
    let (lab, counters) = (Lab::new(), Counters::default());
    let locks = counters.connect(&lab);
    let error = locks.mutex("").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(counters.failures(), only("invalid_argument", 1));
    let error = locks.reentrant("a").with_ttl(Duration::from_millis(1)).try_lock(&Owner::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(counters.failures(), only("invalid_argument", 2));
}

#[tokio::test]
async fn a_loss_that_ends_a_wait_for_several_locks_is_counted() {
    let (lab, counters) = (Lab::new(), Counters::default());
    let locks = metrics::with_local_recorder(&counters, || lab.store.connect());
    let held = lab.store.connect().mutex("b").lock().await.unwrap();
    let waiting = tokio::spawn(lock_all([locks.mutex("a"), locks.mutex("b")]));
    let a = lab.store.connect().mutex("a");
    while a.inspect().await.unwrap().holders.is_empty() {
        tokio::task::yield_now().await;
    }
    lab.store.lose("a");
    waiting.await.unwrap().unwrap_err();
    assert_eq!(counters.failures(), only("lock_lost", 1));
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_step_for_several_locks_that_fails_is_no_failure_of_a_call_that_goes_on() {
    let (lab, counters) = (Lab::new(), Counters::default());
    lab.line.takes_several(0);
    let locks = counters.connect(&lab);
    lab.line.set(Fault::Silent);
    let waiting = tokio::spawn(lock_all([locks.mutex("a"), locks.mutex("b")]));
    lab.line.asked_times("several", 1).await;
    lab.line.set(Fault::None);
    lab.pass(Duration::from_millis(2_100)).await;
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(counters.failures(), BTreeMap::new());

    lab.line.set(Fault::Down);
    let error = try_lock_all([locks.mutex("a"), locks.mutex("b")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(counters.failures(), only("unavailable", 1));
}

#[tokio::test]
async fn locks_of_one_call_that_have_no_order_are_counted() {
    let (lab, counters) = (Lab::new(), Counters::default());
    let (locks, other) = (counters.connect(&lab), lab.connect());
    let error = try_lock_all([locks.mutex("a"), locks.mutex("a")]).await.unwrap_err();
    assert_eq!((error.kind(), error.backend()), (ErrorKind::InvalidArgument, Some("faulty")));
    assert_eq!(counters.failures(), only("invalid_argument", 1));
    let error = try_lock_all([locks.mutex("a"), other.mutex("b")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(counters.failures(), only("invalid_argument", 2));
}

#[tokio::test]
async fn a_grant_without_its_token_is_counted() {
    let (lab, counters) = (Lab::new(), Counters::default());
    let locks = counters.connect(&lab);
    let (fenced, recorded) = (locks.mutex("a").fenced().unwrap(), locks.recorded("b").unwrap());
    lab.line.has_no_tokens();
    assert_eq!(fenced.try_lock().await.unwrap_err().kind(), ErrorKind::Protocol);
    assert_eq!(counters.failures(), only("protocol_error", 1));
    assert_eq!(recorded.try_lock().await.unwrap_err().kind(), ErrorKind::Protocol);
    assert_eq!(counters.failures(), only("protocol_error", 2));
}

#[tokio::test]
async fn a_record_that_is_not_stamped_is_counted() {
    let (lab, counters) = (Lab::new(), Counters::default());
    let recorded = counters.connect(&lab).recorded("a").unwrap();
    let error = recorded.clone().with_retention(Duration::ZERO).try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(counters.failures(), only("invalid_argument", 1));
    lab.line.set(Fault::KeepsAnswers);
    let taking = tokio::spawn(async move { recorded.try_lock().await });
    eventually("it is granted", || lab.store.used() == 1).await;
    lab.line.set(Fault::Down);
    lab.pass(Duration::from_millis(100)).await;
    let error = taking.await.unwrap().unwrap_err();
    let counted = BTreeMap::from(
        [("invalid_argument", 1), (&*error.kind().to_string().replace(' ', "_"), 1)]
            .map(|(kind, count)| (kind.to_owned(), count)),
    );
    assert_eq!(counters.failures(), counted);
}

#[tokio::test]
async fn an_adoption_that_finds_nothing_is_no_refusal() {
    let (lab, counters) = (Lab::new(), Counters::default());
    let locks = metrics::with_local_recorder(&counters, || lab.store.connect());
    let detached = locks.mutex("a").lock().await.unwrap().detach().await.unwrap();
    let adopted = locks.adopt(&detached).await.unwrap();
    assert_eq!(locks.adopt(&detached).await.unwrap_err().kind(), ErrorKind::NotHeld);
    assert_eq!(counters.failures(), only("not_held", 1));
    adopted.release().await.unwrap();
}
