//! Losses that a server announces.

use std::sync::Mutex;

use tokio::sync::mpsc;

use crate::clock::BootInstant;
use crate::loss::LossReason;
use crate::owner::GrantId;
use crate::sync::locked;

/// The number of announcements that stand before the subscriber.
const MOST: usize = 65_536;

/// A grant that was lost at the server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notice {
    /// The grant's id.
    pub grant: GrantId,
    /// The reason of the loss.
    pub reason: LossReason,
    /// The instant by which it was lost.
    pub lost_by: BootInstant,
}

impl Notice {
    /// A notice of a grant that was lost for this reason, by this instant.
    #[must_use]
    pub const fn new(grant: GrantId, reason: LossReason, lost_by: BootInstant) -> Self {
        Self { grant, reason, lost_by }
    }
}

/// A backend's end of its [`Notices`]: announces grants that were lost at the server.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// use lock_core::clock::{Clock, SystemClock};
/// use lock_core::driver::{Notice, NoticeSource};
/// use lock_core::{GrantId, LossReason};
///
/// let source = NoticeSource::default(); // a field of the backend
/// let mut notices = source.subscribe(); // the answer of `Backend::notices`
/// let notice = Notice::new(GrantId::random()?, LossReason::Taken, SystemClock.now());
/// source.announce(notice.clone()); // when the server says so
/// assert_eq!(notices.next().await, Some(notice));
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct NoticeSource(Mutex<Option<mpsc::Sender<Notice>>>);

impl NoticeSource {
    /// Returns what is announced from now on. There is one subscriber: an earlier one hears nothing more.
    pub fn subscribe(&self) -> Notices {
        let (sender, receiver) = mpsc::channel(MOST);
        *locked(&self.0) = Some(sender);
        Notices(receiver)
    }

    /// Announces that a grant was lost, by an instant of [`Backend::clock`](super::Backend::clock). It is not heard for a grant
    /// that was asked for after that instant, under the same id. Never waits; does nothing while nobody has subscribed: a client
    /// without a keeper has no guards to tell. Of 65,536 announcements that the keeper has not taken up, further ones are left
    /// out: the holder hears of its loss at its next renewal, or at its deadline.
    pub fn announce(&self, notice: Notice) {
        if let Some(subscriber) = &*locked(&self.0) {
            // It fails if the subscriber is gone, which is the same as none, or has too much before it.
            let _ = subscriber.try_send(notice);
        }
    }
}

/// The announcements of a [`NoticeSource`], in order.
#[derive(Debug)]
pub struct Notices(mpsc::Receiver<Notice>);

impl Notices {
    /// Returns the next announcement; `None` if there will be no more, because the source is gone or another subscriber has
    /// come.
    ///
    /// # Cancel safety
    /// Dropping the future loses no announcement.
    pub async fn next(&mut self) -> Option<Notice> {
        self.0.recv().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn notice(number: u8) -> Notice {
        let (grant, lost_by) = (GrantId::from_bytes([number; 16]), BootInstant::from_origin(Duration::ZERO));
        Notice { grant, reason: LossReason::Taken, lost_by }
    }

    #[tokio::test]
    async fn only_the_latest_subscriber_is_told_and_in_order() {
        let source = NoticeSource::default();
        source.announce(notice(1));
        let mut first = source.subscribe();
        let mut second = source.subscribe();
        [1, 2].map(notice).into_iter().for_each(|notice| source.announce(notice));
        assert_eq!(first.next().await, None);
        for number in [1, 2] {
            assert_eq!(second.next().await, Some(notice(number)));
        }
        drop(source);
        assert_eq!(second.next().await, None);
    }

    #[tokio::test]
    async fn no_more_announcements_wait_than_the_bound_says() {
        let source = NoticeSource::default();
        let mut notices = source.subscribe();
        (0..MOST + 9).for_each(|_| source.announce(notice(1)));
        drop(source);
        let mut heard = 0;
        while notices.next().await.is_some() {
            heard += 1;
        }
        assert_eq!(heard, MOST);
    }
}
