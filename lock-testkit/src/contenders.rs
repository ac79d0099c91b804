//! Contenders that take turns while something happens to their servers, and what became of it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use lock_core::fence::FenceGate;
use lock_core::{Error, ErrorKind, FencingToken, Locks};
use tokio::task::JoinHandle;

use crate::adapters::{Exclusive, Form, Held};
use crate::context::{Cx, LOCK};
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::time::{eventually, ms, op_timeout, pass, promptly, soon, ttl};

/// Clients that contend, each for every kind of lock.
const CLIENTS: usize = 3;
/// The kinds of lock, and for how many there is room.
const KINDS: [(Form, usize); 5] =
    [(Form::Mutex, 1), (Form::Write, 1), (Form::Single, 1), (Form::Single, 2), (Form::Reentrant, 1)];

/// Clients that contend for every kind of lock that there is, until they are stopped.
pub(crate) struct Contenders {
    counters: Vec<Arc<GatedCounter>>,
    contenders: Vec<Contender>,
    done: Arc<AtomicBool>,
}

struct Contender {
    turns: Arc<AtomicUsize>,
    task: JoinHandle<Verdict>,
}

impl Contenders {
    /// Starts them; `connect` makes a client.
    pub(crate) async fn start(cx: &Cx, connect: impl AsyncFn() -> Result<Locks, Failure>) -> Result<Self, Failure> {
        let (mut counters, mut contenders, done) = (Vec::new(), Vec::new(), Arc::<AtomicBool>::default());
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(connect().await?);
        }
        for (form, places) in KINDS {
            if cx.abilities.lacking(form, &[]).is_some() {
                continue;
            }
            let counter = Arc::new(GatedCounter::of(form, places));
            for locks in &clients {
                let lock = counter.lock(locks)?;
                let (counter, done, turns) = (counter.clone(), done.clone(), Arc::default());
                let task = tokio::spawn(contend(lock, counter, done, Arc::clone(&turns)));
                contenders.push(Contender { turns, task });
            }
            counters.push(counter);
        }
        Ok(Self { counters, contenders, done })
    }

    /// Waits until every single contender has had its turn so many times more.
    pub(crate) async fn all_go_on(&self, turns: usize) -> Verdict {
        let counted = || self.contenders.iter().map(|contender| contender.turns.load(Ordering::Relaxed));
        let before: Vec<_> = counted().collect();
        let all_went_on = async || Ok(counted().zip(&before).all(|(now, before)| now >= before + turns).then_some(()));
        let outcome = eventually("every contender has its turns again", promptly() * 3, all_went_on).await;
        let turns: Vec<_> = counted().zip(&before).map(|(now, before)| now - before).collect();
        outcome.map_err(|failure| failure.and(format_args!("turns since: {turns:?}")))
    }

    /// Stops them, and returns the counters.
    pub(crate) async fn stop(self) -> Result<Vec<Arc<GatedCounter>>, Failure> {
        self.done.store(true, Ordering::SeqCst);
        for contender in self.contenders {
            soon("every call comes back", longest_call() * 2, contender.task).await???;
        }
        Ok(self.counters)
    }
}

/// The time in which a call has come back, if none hangs: the wait that it asks for, and the operation timeouts of what
/// goes wrong on the way.
fn longest_call() -> std::time::Duration {
    ttl() * 5 + op_timeout() * 5
}

async fn contend(
    lock: Exclusive,
    counter: Arc<GatedCounter>,
    done: Arc<AtomicBool>,
    turns: Arc<AtomicUsize>,
) -> Verdict {
    while !done.load(Ordering::SeqCst) {
        match soon("a wait comes back", longest_call(), lock.try_lock_for(ttl() * 5)).await? {
            Ok(Some(held)) => {
                counter.turn(&held).await;
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

/// Expects an error that a server that fails may lead to; an answer that belongs to another request is none.
pub(crate) fn is_of_the_trouble(error: &Error) -> Verdict {
    use ErrorKind::{Indeterminate, Lost, NotHeld, TimedOut, Unavailable};
    let expected = [Indeterminate, Lost, NotHeld, TimedOut, Unavailable].contains(&error.kind());
    ensure!(expected, "a server that failed has led to this error: {error}");
    Ok(())
}

/// A counter behind a gate, protected by one lock, which is read and written in two steps.
pub(crate) struct GatedCounter {
    form: Form,
    places: usize,
    /// The beginnings and ends of turns in which the holder believed in its lock all the time.
    turns: Mutex<Vec<(Instant, Instant)>>,
    gate: FenceGate,
    /// The tokens of all turns. The gate admits one that comes again, as it is the holder's of before.
    tokens: Mutex<HashSet<FencingToken>>,
    /// The number of tokens that were not above all earlier ones.
    stale: AtomicUsize,
    counter: AtomicU64,
    /// Writes that the gate has admitted.
    written: AtomicU64,
}

impl GatedCounter {
    fn of(form: Form, places: usize) -> Self {
        Self {
            form,
            places,
            turns: Mutex::default(),
            gate: FenceGate::new(),
            tokens: Mutex::default(),
            stale: AtomicUsize::new(0),
            counter: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    fn lock(&self, locks: &Locks) -> Result<Exclusive, Failure> {
        let lock = match u32::try_from(self.places)? {
            1 => self.form.handle(locks, LOCK)?,
            places => Exclusive::Permit(locks.semaphore("for/several", places).or_fail("no semaphore")?),
        };
        Ok(lock.with_ttl(ttl()))
    }

    async fn turn(&self, held: &Held) {
        let began = Instant::now();
        let admitted = || held.token().is_some_and(|token| self.gate.admit_exclusive(token).is_ok());
        let read = admitted().then(|| self.counter.load(Ordering::SeqCst));
        if let Some(token) = held.token() {
            let is_new = self.tokens.lock().unwrap_or_else(PoisonError::into_inner).insert(token);
            if !is_new || read.is_none() && held.is_held() {
                self.stale.fetch_add(1, Ordering::SeqCst);
            }
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

    /// Returns how many came in although all places were taken by others who believed in their locks.
    pub(crate) fn overlaps(&self) -> usize {
        self.overlaps_among(|_| true)
    }

    /// Returns the overlaps of those only who have come in since then.
    pub(crate) fn overlaps_since(&self, then: Instant) -> usize {
        self.overlaps_among(|began| began >= then)
    }

    fn overlaps_among(&self, counts: impl Fn(Instant) -> bool) -> usize {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = turns.iter().filter(|(began, _)| counts(*began));
        let mut steps: Vec<_> = turns.flat_map(|(began, ended)| [(*began, true), (*ended, false)]).collect();
        // Who leaves at the very instant leaves first.
        steps.sort_unstable();
        let (mut inside, mut overlaps) = (0, 0);
        for (_, enters) in steps {
            inside = if enters { inside + 1 } else { inside - 1 };
            overlaps += usize::from(enters && inside > self.places);
        }
        overlaps
    }

    /// Returns how many holders that believed in their locks had a token of the past.
    pub(crate) fn stale(&self) -> usize {
        self.stale.load(Ordering::SeqCst)
    }

    /// Updates that were admitted and are not there.
    pub(crate) fn lost_updates(&self) -> u64 {
        self.written.load(Ordering::SeqCst) - self.counter.load(Ordering::SeqCst)
    }

    pub(crate) fn places(&self) -> usize {
        self.places
    }

    pub(crate) fn name(&self) -> String {
        if self.places == 1 { self.form.name().to_owned() } else { format!("semaphore of {}", self.places) }
    }
}
