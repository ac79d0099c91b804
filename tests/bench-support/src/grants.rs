//! Many locks that are released at once, and those that wait for them.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_core::MutexGuard;
use tokio::task::JoinHandle;

use crate::Outcome;

/// Releases these; returns for each when that was asked for.
///
/// # Errors
/// If a release fails.
pub async fn release_all(held: impl Iterator<Item = MutexGuard>) -> Outcome<Vec<Instant>> {
    let released = held.map(|guard| async {
        let began = Instant::now();
        guard.release().await.map(|()| began)
    });
    Ok(join_all(released).await.into_iter().collect::<Result<_, _>>()?)
}

/// Waits for these waits, each of which says when it was granted, so long in all. `None` for one that has nothing by then: it
/// was left out.
///
/// # Errors
/// If a wait fails.
pub async fn granted(waiting: Vec<JoinHandle<Outcome<Instant>>>, within: Duration) -> Outcome<Vec<Option<Instant>>> {
    let (mut granted, end) = (Vec::new(), Instant::now() + within);
    for mut wait in waiting {
        match tokio::time::timeout_at(end.into(), &mut wait).await {
            Ok(outcome) => granted.push(Some(outcome??)),
            Err(_) => {
                wait.abort();
                granted.push(None);
            }
        }
    }
    Ok(granted)
}
