//! Contenders that take turns while something happens to their servers, and what became of it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use lock_core::fence::FenceGate;
use lock_core::{Error, ErrorKind, Locks};
use tokio::task::JoinHandle;

use crate::adapters::{Form, Held};
use crate::context::{Cx, LOCK};
use crate::failure::{Failure, Verdict, ensure};
use crate::time::{eventually, ms, op_timeout, pass, promptly, soon, ttl};

/// Clients that contend, each for every form of the lock.
const CLIENTS: usize = 2;

/// Two clients that contend for every kind of lock that there is, until the crowd disperses.
pub(crate) struct Crowd {
    rooms: Vec<Arc<Room>>,
    contenders: Vec<Contender>,
    done: Arc<AtomicBool>,
}

struct Contender {
    form: Form,
    turns: Arc<AtomicUsize>,
    task: JoinHandle<Verdict>,
}

impl Crowd {
    /// Gathers; `connect` makes a client.
    pub(crate) async fn gather(cx: &Cx, connect: impl AsyncFn() -> Result<Locks, Failure>) -> Result<Self, Failure> {
        let (mut rooms, mut contenders, done) = (Vec::new(), Vec::new(), Arc::<AtomicBool>::default());
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(connect().await?);
        }
        for form in [Form::Mutex, Form::Write, Form::Single, Form::Reentrant] {
            if cx.abilities.lacking(form, &[]).is_some() {
                continue;
            }
            let room = Arc::new(Room::of(form));
            for locks in &clients {
                let (locks, room, done, turns) = (locks.clone(), room.clone(), done.clone(), Arc::default());
                let task = tokio::spawn(contend(locks, room, done, Arc::clone(&turns)));
                contenders.push(Contender { form, turns, task });
            }
            rooms.push(room);
        }
        Ok(Self { rooms, contenders, done })
    }

    /// Waits until every single contender has had its turn so many times more.
    pub(crate) async fn goes_on(&self, turns: usize) -> Verdict {
        let counted = || self.contenders.iter().map(|contender| contender.turns.load(Ordering::Relaxed));
        let before: Vec<_> = counted().collect();
        let all_went_on = async || {
            if let Some(ended) = self.contenders.iter().find(|contender| contender.task.is_finished()) {
                return Err(Failure::new(format!("a contender for the {} has given up", ended.form.name())));
            }
            Ok(counted().zip(&before).all(|(now, before)| now >= before + turns).then_some(()))
        };
        let outcome = eventually("every contender has its turns again", promptly() * 3, all_went_on).await;
        let turns: Vec<_> = counted().zip(&before).map(|(now, before)| now - before).collect();
        outcome.map_err(|failure| failure.and(format_args!("turns since: {turns:?}")))
    }

    /// Ends, and shows the rooms.
    pub(crate) async fn disperse(self) -> Result<Vec<Arc<Room>>, Failure> {
        self.done.store(true, Ordering::SeqCst);
        for contender in self.contenders {
            soon("every call comes back", longest_call() * 2, contender.task).await???;
        }
        Ok(self.rooms)
    }
}

/// By when a call has come back, if none hangs: the wait that it asks for, and the operation timeouts of what goes wrong on
/// the way.
fn longest_call() -> std::time::Duration {
    ttl() * 5 + op_timeout() * 5
}

async fn contend(locks: Locks, room: Arc<Room>, done: Arc<AtomicBool>, turns: Arc<AtomicUsize>) -> Verdict {
    let lock = room.form.handle(&locks, LOCK)?.with_ttl(ttl());
    while !done.load(Ordering::SeqCst) {
        match soon("a wait comes back", longest_call(), lock.try_lock_for(ttl() * 5)).await? {
            Ok(Some(held)) => {
                room.turn(&held).await;
                match soon("a release comes back", longest_call(), held.release()).await? {
                    Ok(()) => drop(turns.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => is_of_the_trouble(&error)?,
                }
            }
            Ok(None) => {}
            Err(error) => is_of_the_trouble(&error)?,
        }
    }
    Ok(())
}

/// What a server that fails may do to a call; an answer that belongs to another request is none of it.
fn is_of_the_trouble(error: &Error) -> Verdict {
    use ErrorKind::{Indeterminate, Lost, NotHeld, TimedOut, Unavailable};
    let expected = [Indeterminate, Lost, NotHeld, TimedOut, Unavailable].contains(&error.kind());
    ensure!(expected, "a server that failed has led to this error: {error}");
    Ok(())
}

/// What one lock protects: a counter behind a gate, which is read and written in two steps.
pub(crate) struct Room {
    form: Form,
    /// From when to when somebody was inside and believed in his lock all the time.
    turns: Mutex<Vec<(Instant, Instant)>>,
    gate: FenceGate,
    /// How often a token came that was not above all earlier ones.
    stale: AtomicUsize,
    counter: AtomicU64,
    /// Writes that the gate has admitted.
    written: AtomicU64,
}

impl Room {
    fn of(form: Form) -> Self {
        Self {
            form,
            turns: Mutex::default(),
            gate: FenceGate::new(),
            stale: AtomicUsize::new(0),
            counter: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    async fn turn(&self, held: &Held) {
        let began = Instant::now();
        let admitted = || held.token().is_some_and(|token| self.gate.admit_exclusive(token).is_ok());
        let read = admitted().then(|| self.counter.load(Ordering::SeqCst));
        if held.token().is_some() && read.is_none() && held.is_held() {
            self.stale.fetch_add(1, Ordering::SeqCst);
        }
        pass(ms(5)).await;
        if let Some(value) = read.filter(|_| admitted()) {
            self.counter.store(value + 1, Ordering::SeqCst);
            self.written.fetch_add(1, Ordering::SeqCst);
        }
        let ended = Instant::now();
        if held.is_held() {
            self.turns.lock().unwrap_or_else(PoisonError::into_inner).push((began, ended));
        }
    }

    /// How many came in while somebody was inside who believed in his lock.
    pub(crate) fn overlaps(&self) -> usize {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner).clone();
        turns.sort_unstable();
        turns.windows(2).filter(|pair| pair[1].0 < pair[0].1).count()
    }

    /// How many holders that believed in their locks had a token of the past.
    pub(crate) fn stale(&self) -> usize {
        self.stale.load(Ordering::SeqCst)
    }

    /// Updates that were admitted and are not there.
    pub(crate) fn lost_updates(&self) -> u64 {
        self.written.load(Ordering::SeqCst) - self.counter.load(Ordering::SeqCst)
    }

    pub(crate) fn name(&self) -> &'static str {
        self.form.name()
    }
}
