//! Starting servers on ports that were free a moment ago.

use lock_testkit::Missing;

/// The number of times that other ports are tried when somebody else was faster.
const TRIES: usize = 5;

/// Starts something on free ports. Between our look and a server's own, somebody else may take a port; then it is started
/// again, on others.
pub(crate) async fn on_free_ports<T, F>(start: impl Fn() -> F) -> Result<T, Missing>
where
    F: Future<Output = Result<T, Missing>>,
{
    let mut tries = 1;
    loop {
        match start().await {
            Err(missing) if tries < TRIES && missing.to_string().contains("Address already in use") => tries += 1,
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn other_ports_are_tried_when_one_was_taken() {
        let tried = AtomicUsize::new(0);
        let start = |lucky: usize| {
            let number = tried.fetch_add(1, Ordering::Relaxed) + 1;
            async move { if number == lucky { Ok(number) } else { Err(Missing::new("Address already in use")) } }
        };
        assert_eq!(on_free_ports(|| start(3)).await.unwrap(), 3);
        assert!(on_free_ports(|| start(0)).await.is_err());
        assert_eq!(tried.load(Ordering::Relaxed), 3 + TRIES);
        let outcome = on_free_ports(|| async {
            tried.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(Missing::new("broken"))
        });
        assert!(outcome.await.is_err() && tried.load(Ordering::Relaxed) == 4 + TRIES);
    }
}
