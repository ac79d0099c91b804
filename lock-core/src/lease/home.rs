//! The runtime that a client's background work runs on.

use std::future::Future;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// The runtime on which a client was made. Its background work lives there, so that a short-lived runtime that happens
/// to take the first lock does not take the renewals of all others with it when it ends.
#[derive(Debug, Clone)]
pub(crate) struct Home(Option<Handle>);

impl Home {
    /// The present runtime, if there is one.
    pub(crate) fn here() -> Self {
        Self(Handle::try_current().ok())
    }

    /// Spawns at home or, where there is none (any more), on the present runtime; `None` without either.
    pub(crate) fn spawn<F>(&self, mut task: impl FnMut() -> F) -> Option<JoinHandle<()>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if let Some(home) = &self.0 {
            let spawned = home.spawn(task());
            // A runtime that was shut down ends a task where it is spawned.
            if !spawned.is_finished() {
                return Some(spawned);
            }
        }
        Handle::try_current().ok().map(|present| present.spawn(task()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn work_runs_at_home_and_where_it_is_called_when_home_is_gone() {
        let (first, second) = (runtime(), runtime());
        let home = first.block_on(async { Home::here() });
        let id = async || tokio::runtime::Handle::current().id();
        let (a, b) = (first.block_on(id()), second.block_on(id()));
        let ran_on = |driven: &tokio::runtime::Runtime| {
            let (tell, told) = std::sync::mpsc::channel();
            let _present = second.enter();
            let task = home.spawn(|| {
                let tell = tell.clone();
                async move { tell.send(tokio::runtime::Handle::current().id()).unwrap() }
            });
            driven.block_on(task.unwrap()).unwrap();
            told.recv().unwrap()
        };
        assert_eq!(ran_on(&first), a);
        drop(first);
        assert_eq!(ran_on(&second), b);
        assert!(home.spawn(std::future::pending).is_none(), "spawned without a runtime");
    }
}
