//! The company in which somebody asks for a lock: tasks of the same client that want locks of their own at the same moment, so
//! that what is asked for goes together.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use lock_redis::{Error, Mutex, MutexGuard, Permit, RedisLocks, Semaphore};
use tokio::task::{JoinHandle, spawn_local, yield_now};

use crate::clock::now;
use crate::record::Record;

/// As many of each kind, besides one that finds itself alone, and so goes by itself.
const MEMBERS: usize = 2 * 3;

/// The tasks of one client.
pub(crate) struct Company {
    members: Vec<Rc<Member>>,
    /// Those that have not ended.
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

struct Member {
    lock: Lock,
    client: usize,
    record: Record,
    last_token: Cell<u64>,
}

impl Company {
    /// Nobody in every other seed: then everything goes by itself.
    pub(crate) fn of(locks: &RedisLocks, client: usize, seed: u64, record: &Record) -> Self {
        let name = |number| format!("company of {client}/{number}");
        let member = |number| Member {
            lock: match number % 2 {
                0 => Lock::Mutex(locks.mutex(name(number))),
                _ => Lock::Semaphore(locks.semaphore(name(number), 1)),
            },
            client,
            record: record.clone(),
            last_token: Cell::new(0),
        };
        let members = if seed.is_multiple_of(2) { 0 } else { MEMBERS };
        Self { members: (0..members).map(member).map(Rc::new).collect(), tasks: RefCell::default() }
    }

    /// Each of them asks for its lock and releases it, beginning now. Those of the last time are left alone.
    pub(crate) async fn comes(&self) {
        {
            let mut tasks = self.tasks.borrow_mut();
            tasks.retain(|task| !task.is_finished());
            if self.members.is_empty() || !tasks.is_empty() {
                return;
            }
            tasks.extend(self.members.iter().map(|member| spawn_local(member.clone().takes())));
        }
        // They ask first.
        yield_now().await;
    }

    /// Waits for all of them.
    pub(crate) async fn leaves(&self) {
        let tasks = self.tasks.take();
        for task in tasks {
            let _ = task.await;
        }
    }
}

/// The lock of a member: each kind goes together with its like.
enum Lock {
    Mutex(Mutex),
    Semaphore(Semaphore),
}

enum Held {
    Guard(MutexGuard),
    Permit(Permit),
}

impl Lock {
    async fn try_lock(&self) -> Result<Option<Held>, Error> {
        Ok(match self {
            Self::Mutex(mutex) => mutex.try_lock().await?.map(Held::Guard),
            Self::Semaphore(semaphore) => semaphore.try_acquire().await?.map(Held::Permit),
        })
    }
}

impl Held {
    fn token(&self) -> u64 {
        match self {
            Self::Guard(guard) => guard.fencing_token().map_or(0, |token| token.as_u64()),
            Self::Permit(permit) => permit.token().map_or(0, |token| token.as_u64()),
        }
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Self::Guard(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
        }
    }
}

impl Member {
    async fn takes(self: Rc<Self>) {
        let began = now();
        let held = match self.lock.try_lock().await {
            Ok(Some(held)) => held,
            // A release without an answer may be under way still.
            Ok(None) => return self.record.note("somebody of the company was refused"),
            Err(error) => return self.suffered(began, &error),
        };
        let token = held.token();
        let last = self.last_token.replace(token);
        if token <= last {
            self.record.violated(format!("token {token} in the company of {} came after {last}", self.client));
        }
        if let Err(error) = held.release().await {
            self.suffered(began, &error);
        }
    }

    fn suffered(&self, began: std::time::Duration, error: &lock_redis::Error) {
        self.record.suffered(self.client, began, &format!("got {:?} in company", error.kind()));
    }
}
