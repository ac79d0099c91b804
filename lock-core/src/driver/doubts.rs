//! Occasions on which a server may have forgotten grants.

use tokio::sync::watch;

/// A backend's end of its [`Doubts`]: tells that the server may have forgotten grants that it had confirmed.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use lock_core::driver::DoubtSource;
///
/// let source = DoubtSource::default(); // a field of the backend
/// let mut doubts = source.subscribe(); // the answer of `Backend::doubts`
/// source.raise(); // when another server has taken over
/// source.raise();
/// assert_eq!(doubts.next().await, Some(())); // both at once
/// drop(source);
/// assert_eq!(doubts.next().await, None);
/// # }
/// ```
#[derive(Debug, Default)]
pub struct DoubtSource(watch::Sender<u64>);

impl DoubtSource {
    /// Returns the doubts that are raised from now on. There may be any number of subscribers.
    pub fn subscribe(&self) -> Doubts {
        Doubts(self.0.subscribe())
    }

    /// Raises a doubt about every grant. Never waits.
    pub fn raise(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// The doubts of a [`DoubtSource`]. Those that were raised since the last look are one. A clone looks for itself, and has still to hear
/// of those that this one has not heard of.
#[derive(Debug, Clone)]
pub struct Doubts(watch::Receiver<u64>);

impl Doubts {
    /// Waits for the next doubt; `None` if there will be no more, because the source is gone.
    ///
    /// # Cancel safety
    /// Dropping the future loses no doubt.
    pub async fn next(&mut self) -> Option<()> {
        self.0.changed().await.ok()
    }
}
