//! No user, no password, and no URL with either, in any `Debug`, error, log or metric of any backend; and errors that say what
//! happened, each cause once.
//!
//! Everything that is told goes into one heap. Servers of every arrangement that takes credentials are used with the right
//! ones, with wrong ones, after the credentials have changed, and when nobody is there any more.

#![cfg(test)]

mod heap;
mod memcached;
mod redis;
mod words;
mod zookeeper;

use std::time::Duration;

use lock_core::{ClientOptions, Locks};

use crate::heap::{failed, lines_with, listen, shown};

const USER: &str = "quaestor";
const PASSWORD: &str = "xyzzy-plugh";
/// A user without any right, whom the server may name when it refuses a command.
const POOR: &str = "pauper";

/// Short, so that what fails does so soon.
fn hasty() -> ClientOptions {
    let mut options = ClientOptions::default();
    (options.op_timeout, options.patience) = (Duration::from_millis(500), Duration::from_secs(1));
    options
}

/// Uses every kind, as an application and as an operator; what comes back is told, whatever it is. At once, since each of them
/// may take its whole time where nobody answers.
pub(crate) async fn use_all(locks: &Locks) {
    shown(locks);
    let mutex = locks.mutex("secrets");
    shown(&mutex);
    let exclusive = async {
        let guard = failed(mutex.try_lock_for(Duration::from_millis(200)).await).flatten();
        shown(&guard);
        let (seen, tried) = tokio::join!(mutex.inspect(), mutex.try_lock());
        shown(&failed(seen));
        failed(tried.map(drop));
        if let Some(guard) = guard {
            failed(guard.extend(Duration::from_secs(3)).await);
            failed(guard.release().await);
        }
    };
    let shared = async {
        let Some(rwlock) = locks.rwlock("secrets") else { return };
        shown(&rwlock);
        shown(&failed(rwlock.try_read().await));
    };
    let counted = async {
        let Some(semaphore) = locks.semaphore("secrets", 2) else { return };
        shown(&semaphore);
        shown(&failed(semaphore.try_acquire_many_for(1, Duration::from_millis(100)).await));
    };
    tokio::join!(exclusive, shared, counted);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_told_anywhere() {
    listen();
    tokio::join!(
        redis::single(),
        redis::over_tls(),
        redis::behind_sentinels(),
        redis::in_a_cluster(),
        zookeeper::with_a_digest(),
        zookeeper::over_tls_by_sasl(),
        memcached::by_url(),
    );
    let (told, leaks) = lines_with(&[USER, PASSWORD, POOR]);
    assert!(told > 10_000, "only {told} bytes were told");
    assert!(leaks.is_empty(), "{} leaks, such as {:#?}", leaks.len(), &leaks[..leaks.len().min(10)]);
}
