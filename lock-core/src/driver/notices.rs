//! Losses that a server announces.

use std::sync::Mutex;

use tokio::sync::mpsc;

use crate::loss::LossReason;
use crate::owner::GrantId;
use crate::sync::locked;

/// The number of announcements that stand before the subscriber.
const MOST: usize = 65_536;

/// A backend's end of its [`Notices`]: announces grants that were lost at the server.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// use lock_core::driver::NoticeSource;
/// use lock_core::{GrantId, LossReason};
///
/// let source = NoticeSource::default(); // a field of the backend
/// let mut notices = source.subscribe(); // the answer of `Backend::notices`
/// let grant = GrantId::random()?;
/// source.announce(grant, LossReason::Taken); // when the server says so
/// assert_eq!(notices.next().await, Some((grant, LossReason::Taken)));
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct NoticeSource(Mutex<Option<mpsc::Sender<(GrantId, LossReason)>>>);

impl NoticeSource {
    /// Returns what is announced from now on. There is one subscriber: an earlier one hears nothing more.
    pub fn subscribe(&self) -> Notices {
        let (sender, receiver) = mpsc::channel(MOST);
        *locked(&self.0) = Some(sender);
        Notices(receiver)
    }

    /// Announces that a grant was lost, and why. Never waits; does nothing while nobody has subscribed: a client
    /// without a keeper has no guards to tell. Of 65,536 announcements that the keeper has not taken up, further ones are left
    /// out: the holder hears of its loss at its next renewal, or at its deadline.
    pub fn announce(&self, grant: GrantId, reason: LossReason) {
        if let Some(subscriber) = &*locked(&self.0) {
            // It fails if the subscriber is gone, which is the same as none, or has too much before it.
            let _ = subscriber.try_send((grant, reason));
        }
    }
}

/// The announcements of a [`NoticeSource`], in order.
#[derive(Debug)]
pub struct Notices(mpsc::Receiver<(GrantId, LossReason)>);

impl Notices {
    /// Returns the next announcement; `None` if there will be no more, because the source is gone or another subscriber has
    /// come.
    ///
    /// # Cancel safety
    /// Dropping the future loses no announcement.
    pub async fn next(&mut self) -> Option<(GrantId, LossReason)> {
        self.0.recv().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_latest_subscriber_is_told_and_in_order() {
        let (source, grants) = (NoticeSource::default(), [(); 2].map(|()| GrantId::random().unwrap()));
        source.announce(grants[0], LossReason::Taken);
        let mut first = source.subscribe();
        let mut second = source.subscribe();
        grants.iter().for_each(|grant| source.announce(*grant, LossReason::Expired));
        assert_eq!(first.next().await, None);
        for grant in grants {
            assert_eq!(second.next().await, Some((grant, LossReason::Expired)));
        }
        drop(source);
        assert_eq!(second.next().await, None);
    }

    #[tokio::test]
    async fn no_more_announcements_wait_than_the_bound_says() {
        let (source, grant) = (NoticeSource::default(), GrantId::random().unwrap());
        let mut notices = source.subscribe();
        (0..MOST + 9).for_each(|_| source.announce(grant, LossReason::Taken));
        drop(source);
        let mut heard = 0;
        while notices.next().await.is_some() {
            heard += 1;
        }
        assert_eq!(heard, MOST);
    }
}
