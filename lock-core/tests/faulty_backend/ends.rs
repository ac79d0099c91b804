//! The end of a hold, and the warning before it.

use std::time::Duration;

use lock_core::memory::MemoryStore;
use lock_core::{Ending, ErrorKind, LeaseOptions, LossReason};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::lab::{Fault, Lab};
use crate::runtimes::soon;

const TTL: Duration = Duration::from_secs(30);

/// A task that waits for this by now, so that it has to be woken.
async fn waiting<T: Send + 'static>(what: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let mut what = Box::pin(what);
    assert!(futures_util::poll!(&mut what).is_pending());
    let (began, begun) = oneshot::channel();
    let task = tokio::spawn(async move {
        assert!(futures_util::poll!(&mut what).is_pending());
        began.send(()).unwrap();
        what.await
    });
    begun.await.unwrap();
    task
}

#[tokio::test]
async fn the_end_is_told_whatever_it_is_and_to_everybody_who_asked() {
    let store = MemoryStore::new();
    let locks = store.connect();
    let mutex = locks.mutex("a").with_ttl(TTL);
    let guard = mutex.lock().await.unwrap();
    assert_eq!(format!("{:?} {:?}", guard.ended(), guard.expires_within(TTL / 2).unwrap()), "Ended ExpiresWithin");
    let (first, second) = (waiting(guard.ended()).await, waiting(guard.ended()).await);
    guard.release().await.unwrap();
    for told in [first, second] {
        assert_eq!(soon("a release is told", told).await.unwrap(), Ending::Released);
    }
    let guard = mutex.lock().await.unwrap();
    let told = waiting(guard.ended()).await;
    drop(guard);
    assert_eq!(soon("a drop is told", told).await.unwrap(), Ending::Released);
    let guard = mutex.lock().await.unwrap();
    let (told, late) = (waiting(guard.ended()).await, guard.ended());
    store.lose("a");
    assert_eq!(soon("a loss is told", told).await.unwrap(), Ending::Lost(LossReason::Taken));
    assert_eq!(soon("also to whoever polls it afterwards", late).await, Ending::Lost(LossReason::Taken));
}

/// A task that waits for the end of a hold ends with it, so that there are never more of them than holds.
#[tokio::test]
async fn watchers_of_many_holds_end_with_them() {
    let locks = MemoryStore::new().connect();
    let mutex = locks.mutex("a").with_ttl(TTL);
    let before = Handle::current().metrics().num_alive_tasks();
    for _ in 0..2000 {
        let guard = mutex.lock().await.unwrap();
        drop(waiting(guard.ended()).await);
        guard.release().await.unwrap();
    }
    soon("the last watcher ends", async {
        while Handle::current().metrics().num_alive_tasks() > before + 10 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_warning_comes_when_renewals_fail_and_not_before() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").with_ttl(TTL).lock().await.unwrap();
    let mut warning = Box::pin(guard.expires_within(TTL / 2).unwrap());
    for _ in 0..100 {
        lab.clock.advance(TTL / 30);
        lab.settle().await;
        assert!(futures_util::poll!(&mut warning).is_pending(), "all is well: {:?} are left", guard.remaining());
    }
    lab.line.set(Fault::LosesAnswers);
    let warned = loop {
        lab.clock.advance(TTL / 300);
        lab.settle().await;
        if futures_util::poll!(&mut warning).is_ready() {
            break guard.remaining();
        }
        assert!(guard.remaining() > TTL / 2 - TTL / 100, "not warned although {:?} are left", guard.remaining());
    };
    assert!(guard.is_held() && warned <= TTL / 2 && warned > TTL / 2 - TTL / 50, "warned {warned:?} before the end");
    assert!(futures_util::poll!(&mut warning).is_pending(), "it is told once");
}

#[tokio::test]
async fn a_warning_comes_with_the_end_too() {
    let store = MemoryStore::new();
    let locks = store.connect();
    for is_lost in [true, false] {
        let guard = locks.mutex("a").with_ttl(TTL).lock().await.unwrap();
        let warning = waiting(guard.expires_within(Duration::ZERO).unwrap()).await;
        if is_lost {
            store.lose("a");
        } else {
            guard.release().await.unwrap();
        }
        soon("the warning", warning).await.unwrap();
    }
}

#[tokio::test]
async fn a_warning_that_would_come_although_all_is_well_is_refused() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").with_ttl(TTL).lock().await.unwrap();
    assert!(guard.expires_within(TTL * 6 / 10).is_ok());
    let refused = guard.expires_within(TTL * 7 / 10).unwrap_err();
    assert_eq!((refused.kind(), refused.name()), (ErrorKind::InvalidArgument, Some("a")));
    let lease = LeaseOptions::new(TTL).with_auto_renew(false);
    let unrenewed = locks.mutex("b").with_lease(lease).lock().await.unwrap();
    assert!(unrenewed.expires_within(TTL * 9 / 10).is_ok());
    assert!(unrenewed.expires_within(TTL).is_err());
}
