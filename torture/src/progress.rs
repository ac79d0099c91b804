//! The display of a run while it goes on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use lock_testkit_checker::history::{History, Rules};
use lock_testkit_checker::{Verdict, check};

/// Between two looks at the history, at least; a look never takes more than a tenth of the time.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A bar, and beside it the figures and the verdict so far.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    ended: Arc<AtomicBool>,
}

impl Progress {
    /// Begins. Looks at the history now and then, in a thread of its own.
    pub(crate) fn begin(length: Duration, history: PathBuf, rules: Rules) -> Self {
        let bar = ProgressBar::new(length.as_secs().max(1));
        // The template is a constant that indicatif understands: it is shown in every run.
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} [{bar:40}] {msg}") {
            bar.set_style(style);
        }
        let ended = Arc::new(AtomicBool::new(false));
        let (shown, stop) = (bar.clone(), ended.clone());
        std::thread::spawn(move || {
            let mut next = Instant::now() + LOOK_EVERY;
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(250));
                shown.set_position(shown.elapsed().as_secs().min(length.as_secs()));
                if Instant::now() >= next {
                    let took = look(&shown, &history, &rules);
                    next = Instant::now() + LOOK_EVERY.max(took * 10);
                }
            }
        });
        Self { bar, ended }
    }

    /// Says something above the bar.
    pub(crate) fn say(&self, what: &str) {
        self.bar.suspend(|| println!("{what}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.bar.finish_and_clear();
    }
}

fn look(bar: &ProgressBar, history: &PathBuf, rules: &Rules) -> Duration {
    let began = Instant::now();
    // The last line may be half written.
    if let Ok(history) = History::read([history]) {
        let judgement = check(&history, Some(rules));
        let so_far = if judgement.verdict == Verdict::Illegal { "ILLEGAL" } else { "legal so far" };
        let summary = &judgement.summary;
        bar.set_message(format!(
            "{} grants, {} faults, {} losses, {so_far}",
            summary.grants, summary.faults, summary.losses
        ));
    }
    began.elapsed()
}
