//! The runtime that a client's background work runs on.

use std::future::Future;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// The runtime on which a client was made. Its background work lives there, so that a short-lived runtime that happens
/// to take the first lock does not take the renewals of all others with it when it ends.
#[derive(Debug, Clone)]
pub(crate) struct BackgroundRuntime(Option<Handle>);

impl BackgroundRuntime {
    /// The present runtime, if there is one.
    pub(crate) fn current() -> Self {
        Self(Handle::try_current().ok())
    }

    /// Spawns on this runtime or, where there is none (any more), on the present runtime, or else on one of the others; `None` if
    /// all have ended.
    pub(crate) fn spawn<F>(
        &self,
        others: impl FnOnce() -> Vec<Handle>,
        mut task: impl FnMut() -> F,
    ) -> Option<JoinHandle<()>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // A runtime that was shut down ends a task where it is spawned.
        let mut spawn = |runtime: &Handle| Some(runtime.spawn(task())).filter(|spawned| !spawned.is_finished());
        let spawned = self.0.as_ref().and_then(&mut spawn);
        let spawned = spawned.or_else(|| spawn(&Handle::try_current().ok()?));
        spawned.or_else(|| others().iter().find_map(spawn))
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Runtime;

    use super::*;

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn work_runs_on_its_own_runtime_then_where_it_is_called_then_elsewhere() {
        let (own, present, other) = (runtime(), runtime(), runtime());
        let at = own.block_on(async { BackgroundRuntime::current() });
        let id = |runtime: &Runtime| runtime.handle().id();
        let ran_on = |driven: &Runtime| {
            let (tell, told) = std::sync::mpsc::channel();
            let others = || vec![other.handle().clone()];
            let task = at.spawn(others, || {
                let tell = tell.clone();
                async move { tell.send(Handle::current().id()).unwrap() }
            });
            driven.block_on(task.unwrap()).unwrap();
            told.recv().unwrap()
        };
        let entered = present.enter();
        assert_eq!(ran_on(&own), id(&own));
        drop(own);
        assert_eq!(ran_on(&present), id(&present));
        drop(entered);
        assert_eq!(ran_on(&other), id(&other));
        assert!(at.spawn(Vec::new, std::future::pending).is_none(), "spawned without a runtime");
    }
}
