//! A background task of a client, which runs as long as there is a runtime for it.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use futures_util::FutureExt;
use tokio::runtime::Handle;

use super::runtime::BackgroundRuntime;
use crate::sync::locked;

/// No task runs.
const NONE: u64 = 0;
/// The task has panicked. Only the next use starts another one: that one may panic too, and so for ever.
const PANICKED: u64 = u64::MAX;

/// The owner of a background task.
pub(super) trait Carried: Send + Sync + 'static {
    fn background(&self) -> &Background;

    /// The other runtimes for the task, if neither the client's own nor the present one carries it.
    fn runtimes(&self) -> Vec<Handle>;

    /// Whether the task is to go on when its runtime ends.
    fn is_needed(&self) -> bool;

    /// The task itself.
    fn run(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static;
}

/// Whether a background task runs, and where it is to run.
#[derive(Debug)]
pub(super) struct Background {
    runtime: BackgroundRuntime,
    /// The number of the task that runs.
    running: AtomicU64,
    /// The number that was given out last; locked while a task is started.
    numbers: Mutex<u64>,
}

impl Background {
    pub(super) fn at(runtime: BackgroundRuntime) -> Self {
        Self { runtime, running: AtomicU64::new(NONE), numbers: Mutex::new(NONE) }
    }

    /// Whether the task runs, or has ended by a panic.
    pub(super) fn is_up(&self) -> bool {
        self.running.load(Ordering::SeqCst) != NONE
    }

    pub(super) fn is_running(&self) -> bool {
        !matches!(self.running.load(Ordering::SeqCst), NONE | PANICKED)
    }

    /// The task of this number has ended; whether it was the one that ran.
    fn ended(&self, number: u64, how: u64) -> bool {
        self.running.compare_exchange(number, how, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// Starts the task unless it runs: on the client's own runtime, on the present runtime, or on another one.
pub(super) fn start<T: Carried>(owner: &Arc<T>) {
    start_with(owner, locked(&owner.background().numbers));
}

fn start_with<'a, T: Carried>(owner: &'a Arc<T>, mut numbers: MutexGuard<'a, u64>) {
    let background = owner.background();
    loop {
        if !background.is_running() {
            let spawned = background.runtime.spawn(
                || owner.runtimes(),
                || {
                    *numbers += 1;
                    background.running.store(*numbers, Ordering::SeqCst);
                    watched(Alive { owner: owner.clone(), number: *numbers })
                },
            );
            if spawned.is_none() {
                return;
            }
        }
        drop(numbers);
        // The task may have ended meanwhile; its end has left the next start to this call.
        if background.is_up() {
            return;
        }
        numbers = locked(&background.numbers);
    }
}

/// The task, which leaves word of a panic.
fn watched<T: Carried>(alive: Alive<T>) -> impl Future<Output = ()> + Send + 'static {
    let task = AssertUnwindSafe(alive.owner.clone().run()).catch_unwind();
    async move {
        if let Err(panic) = task.await {
            alive.owner.background().ended(alive.number, PANICKED);
            resume_unwind(panic);
        }
    }
}

/// The life of one task: dropped when it has returned, and when its runtime ends or refuses it.
struct Alive<T: Carried> {
    owner: Arc<T>,
    number: u64,
}

impl<T: Carried> Drop for Alive<T> {
    fn drop(&mut self) {
        let background = self.owner.background();
        if !background.ended(self.number, NONE) || !self.owner.is_needed() {
            return;
        }
        match background.numbers.try_lock() {
            Ok(numbers) => start_with(&self.owner, numbers),
            Err(TryLockError::Poisoned(numbers)) => start_with(&self.owner, numbers.into_inner()),
            // Whoever is starting a task looks again afterwards; it may be this very thread.
            Err(TryLockError::WouldBlock) => {}
        }
    }
}
