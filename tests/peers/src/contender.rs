//! Libraries whose locks are measured.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bench_support::Outcome;

/// The work of the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scene {
    /// Each locks and releases a name of its own.
    Free,
    /// All lock and release one name, as fast as they can; whoever takes it twice in a row has handed nothing over.
    HandOver,
    /// One task of each of several processes does that.
    Processes,
}

impl Scene {
    /// The scene of this word, as far as a process may be told to play it.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        [Self::Free, Self::HandOver, Self::Processes].into_iter().find(|scene| scene.word() == word)
    }

    /// The word by which programs of other languages know it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::HandOver => "hand-over",
            Self::Processes => "processes",
        }
    }
}

/// One kind of lock of one library.
pub(crate) trait Contender {
    /// The library, its version, and the kind.
    fn name(&self) -> &str;

    /// Whether its grants bring a fencing token.
    fn has_tokens(&self) -> bool;

    /// Whether it is one of this project's.
    fn is_ours(&self) -> bool {
        false
    }

    /// Whether its tasks can do this. A lock that many have at once is not handed over.
    fn takes_part(&self, _scene: Scene) -> bool {
        true
    }

    /// The time for which it runs before it is measured.
    fn warm_up(&self) -> Duration {
        Duration::from_millis(300)
    }

    /// Lets so many tasks lock and release for this long. Returns how many pairs, or hand-overs to another task, there were in a
    /// second.
    fn rate(&mut self, scene: Scene, tasks: usize, time: Duration) -> Pin<Box<dyn Future<Output = Outcome<f64>> + '_>>;
}

/// One task's lock and release, done again and again.
pub(crate) trait Turn: Send + 'static {
    /// Locks, says that it holds, and releases.
    fn go(&mut self, holds: impl Fn() + Send + Sync) -> impl Future<Output = Outcome> + Send;
}

/// A lock of this process.
pub(crate) struct Local<F> {
    name: String,
    has_tokens: bool,
    is_ours: bool,
    is_shared: bool,
    /// Makes one task's lock, of the name that it is to lock.
    make: F,
}

impl<F, T> Local<F>
where
    F: Fn(Scene, String) -> T + 'static,
    T: Turn,
{
    pub(crate) fn boxed(name: impl Into<String>, has_tokens: bool, make: F) -> Box<dyn Contender> {
        Box::new(Self { name: name.into(), has_tokens, is_ours: false, is_shared: false, make })
    }

    /// One of this project's. `is_shared` says whether many have it at once.
    pub(crate) fn ours(name: impl Into<String>, has_tokens: bool, is_shared: bool, make: F) -> Box<dyn Contender> {
        Box::new(Self { name: name.into(), has_tokens, is_ours: true, is_shared, make })
    }
}

/// The grants of tasks that work beside each other.
#[derive(Default)]
struct Count {
    all: AtomicU64,
    /// The grants to another task than the one before.
    handed_over: AtomicU64,
    last: AtomicUsize,
}

impl Count {
    fn holds(&self, task: usize) {
        self.all.fetch_add(1, Ordering::Relaxed);
        if self.last.swap(task, Ordering::Relaxed) != task {
            self.handed_over.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "for tables")]
    fn of(&self, scene: Scene) -> f64 {
        let count = match scene {
            Scene::HandOver => &self.handed_over,
            // The others are in other processes.
            Scene::Free | Scene::Processes => &self.all,
        };
        count.load(Ordering::Relaxed) as f64
    }
}

impl<F, T> Contender for Local<F>
where
    F: Fn(Scene, String) -> T + 'static,
    T: Turn,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn has_tokens(&self) -> bool {
        self.has_tokens
    }

    fn is_ours(&self) -> bool {
        self.is_ours
    }

    fn takes_part(&self, scene: Scene) -> bool {
        match scene {
            Scene::Free => true,
            Scene::HandOver | Scene::Processes => !self.is_shared,
        }
    }

    fn rate(&mut self, scene: Scene, tasks: usize, time: Duration) -> Pin<Box<dyn Future<Output = Outcome<f64>> + '_>> {
        Box::pin(async move {
            let (count, start) = (Arc::new(Count::default()), Instant::now());
            let mut running = Vec::new();
            for task in 0..tasks {
                let name = match scene {
                    Scene::Free => format!("free-{task}"),
                    Scene::HandOver | Scene::Processes => "hand-over".to_owned(),
                };
                let (mut turn, count) = ((self.make)(scene, name), count.clone());
                running.push(tokio::spawn(async move {
                    while start.elapsed() < time {
                        turn.go(|| count.holds(task)).await?;
                    }
                    Outcome::Ok(())
                }));
            }
            for task in running {
                task.await??;
            }
            Ok(count.of(scene) / start.elapsed().as_secs_f64())
        })
    }
}
