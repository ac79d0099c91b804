//! Panics of tasks and threads, each with the run of a case in which it was.
//!
//! tokio keeps a task's panic to itself: without this, a backend whose task has died looks as one that does its work.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The number of panics that are remembered; older ones are forgotten.
const REMEMBERED: usize = 1000;

thread_local! {
    /// The run that this thread works for.
    static RUN: Cell<Option<Run>> = const { Cell::new(None) };
}

static LOG: Mutex<Log> = Mutex::new(Log { first: 0, panics: VecDeque::new() });

/// One run of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run(u64);

/// A guard: the thread's work, until this is dropped, is part of a run.
pub(crate) struct Working {
    before: Option<Run>,
}

/// The panics since an instant that one run has to answer for.
#[derive(Debug)]
pub(crate) struct Watch {
    run: Run,
    from: u64,
}

/// A panic.
#[derive(Debug, Clone)]
pub(crate) struct Panicked {
    run: Option<Run>,
    thread: String,
    what: String,
}

struct Log {
    /// The number of the first panic that is remembered.
    first: u64,
    panics: VecDeque<Panicked>,
}

impl Run {
    /// A new one.
    pub(crate) fn new() -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        Self(RUNS.fetch_add(1, Ordering::Relaxed))
    }

    /// The one that this thread works for.
    pub(crate) fn present() -> Option<Self> {
        RUN.get()
    }

    /// Has this thread work for it until its end.
    pub(crate) fn adopt(run: Option<Self>) {
        RUN.set(run);
    }

    /// Has this thread work for it until the guard is dropped.
    pub(crate) fn work(run: Option<Self>) -> Working {
        Working { before: RUN.replace(run) }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        RUN.set(self.before);
    }
}

impl Watch {
    /// Watches from now on.
    pub(crate) fn of(run: Run) -> Self {
        listen();
        let log = log();
        Self { run, from: log.first + log.panics.len() as u64 }
    }

    /// The first panic since then on a thread that works for this run, or for nobody: a thread of the backend's own.
    pub(crate) fn seen(&self) -> Option<Panicked> {
        self.seen_except(|_| false)
    }

    /// The first of them whose message and place are not to be left out.
    pub(crate) fn seen_except(&self, is_left_out: impl Fn(&str) -> bool) -> Option<Panicked> {
        let log = log();
        let news = usize::try_from(self.from.saturating_sub(log.first)).unwrap_or(usize::MAX);
        let concerns =
            |panicked: &&Panicked| panicked.run.is_none_or(|run| run == self.run) && !is_left_out(&panicked.what);
        log.panics.iter().skip(news).find(concerns).cloned()
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, thread, what } = self;
        write!(f, "a task or thread panicked: {what} (on the thread {thread:?}")?;
        f.write_str(if run.is_some() { ")" } else { ", which belongs to no case: perhaps meant for another one)" })
    }
}

/// Hears of every panic of the process from now on. `resume_unwind`, by which a case asks for one, is not heard.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            note(info);
            before(info);
        }));
    });
}

fn note(info: &PanicHookInfo<'_>) {
    let payload = info.payload();
    let said = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    let place = info.location().map(|place| format!(" at {}:{}", place.file(), place.line())).unwrap_or_default();
    let thread = std::thread::current();
    let panicked = Panicked {
        // A thread that is about to end has no such thing any more.
        run: RUN.try_with(Cell::get).ok().flatten(),
        thread: thread.name().unwrap_or("without a name").to_owned(),
        what: format!("{:?}{place}", said.unwrap_or("without a message")),
    };
    let mut log = log();
    log.panics.push_back(panicked);
    if log.panics.len() > REMEMBERED {
        log.panics.pop_front();
        log.first += 1;
    }
}

/// A panic elsewhere is not passed on: no critical section is left halfway.
fn log() -> MutexGuard<'static, Log> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn panics(run: Option<Run>, what: &'static str) {
        let thread = thread::spawn(move || {
            let _working = Run::work(run);
            assert!(what.is_empty(), "{what}");
        });
        assert!(thread.join().is_err());
    }

    #[test]
    fn a_run_answers_for_its_own_panics_and_for_nobodys() {
        let (mine, other) = (Run::new(), Run::new());
        panics(Some(mine), "before");
        let (watch, others) = (Watch::of(mine), Watch::of(other));
        panics(Some(other), "the other's");
        panics(Some(mine), "mine");
        let seen = watch.seen().unwrap().to_string();
        assert!(seen.contains("mine") && seen.contains("panics.rs"), "{seen}");
        assert!(others.seen().unwrap().to_string().contains("the other's"));
        let watch = Watch::of(Run::new());
        panics(None, "nobody's");
        assert!(watch.seen().unwrap().to_string().contains("belongs to no case"));
    }

    #[test]
    fn a_panic_that_is_left_out_hides_no_later_one() {
        let run = Run::new();
        let watch = Watch::of(run);
        panics(Some(run), "of a crate");
        // Nobody's panic is everybody's: those of the tests beside this one are left out, too.
        let except = |said: &str| !said.contains("the later one");
        assert!(watch.seen().is_some() && watch.seen_except(except).is_none());
        panics(Some(run), "the later one");
        assert!(watch.seen_except(except).is_some());
    }

    #[test]
    fn a_thread_works_for_a_run_until_it_says_otherwise() {
        let run = Run::new();
        {
            let _working = Run::work(Some(run));
            assert_eq!(Run::present(), Some(run));
        }
        assert_eq!(Run::present(), None);
    }
}
