//! The lookups of the server's name: few at a time, whoever asks for it and however long it takes.
//!
//! The system looks a name up in a thread of its own, which nobody can stop: where no name server answers, it goes on for half a minute. If
//! every request began another one, such threads would pile up. So a lookup stays when its callers go, and the next one has what it finds.
//! One that has lost its question would not end before that: so another one is begun beside it after a while. The next caller may come hours
//! later, at another outage: what such an old lookup has found is dropped.

use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::wait;

use crate::address::Address;
use crate::network::Network;

/// The time after which a lookup is left alone, and another one begun: what it finds would be about another time.
const LEFT_AFTER: Duration = Duration::from_secs(60);

/// The time after which another lookup is begun beside one that goes on.
const ANOTHER_AFTER: Duration = Duration::from_secs(2);

/// The lookups that go on beside each other, at most.
pub(super) const MOST: usize = 4;

/// The places that were found, or why there are none.
pub(super) type FoundPlaces = Result<Vec<SocketAddr>, Arc<io::Error>>;

/// The lookups of a client's server that are under way, the last one behind the others.
#[derive(Default)]
pub(super) struct NameLookup(Mutex<Vec<UnderWay>>);

/// A lookup, and its beginning.
#[derive(Clone)]
struct UnderWay {
    places: Shared<BoxFuture<'static, FoundPlaces>>,
    began: BootInstant,
}

impl UnderWay {
    /// Whether it has come to its end, also if nobody has waited for it since.
    fn has_ended(&self) -> bool {
        self.places.clone().now_or_never().is_some()
    }
}

impl NameLookup {
    /// Looks the name up, or joins in the lookup that is under way. Waits until the instant that `until` tells from its beginning.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if it has not come to its end by then. It goes on all the same.
    pub(super) async fn places(
        &self,
        network: &Arc<dyn Network>,
        address: &Address,
        until: impl FnOnce(BootInstant) -> BootInstant,
    ) -> FoundPlaces {
        let UnderWay { places, began } = self.join(network, address);
        let until = until(began);
        let found = wait::before(&SystemClock, |_| until, places.clone()).await;
        if found.is_some() {
            // The next caller is to know what is true then.
            self.under_way().retain(|its| !its.places.ptr_eq(&places));
        }
        found.unwrap_or_else(|| Err(Arc::new(io::ErrorKind::TimedOut.into())))
    }

    /// The last lookup that is under way, or a new one.
    fn join(&self, network: &Arc<dyn Network>, address: &Address) -> UnderWay {
        let (mut all, now) = (self.under_way(), SystemClock.now());
        // The end of one that nobody has waited for is seen by the next caller.
        let (ended, go_on): (Vec<_>, Vec<_>) =
            all.drain(..).filter(|its| now.since(its.began) < LEFT_AFTER).partition(UnderWay::has_ended);
        all.extend(go_on);
        if let Some(ended) = ended.into_iter().rfind(|its| matches!(its.places.peek(), Some(Ok(_)))) {
            return ended;
        }
        if let Some(last) = all.last()
            && (now.since(last.began) < ANOTHER_AFTER || all.len() >= MOST)
        {
            return last.clone();
        }
        let (network, address) = (network.clone(), address.clone());
        let places = async move {
            let (host, port) = address.pair();
            // A panic, where the system has no thread for it, would end the lookups of all callers.
            let found = AssertUnwindSafe(network.resolve(host, port)).catch_unwind().await;
            found.unwrap_or_else(|_| Err(io::Error::other("the lookup panicked"))).map_err(Arc::new)
        };
        let new = UnderWay { places: places.boxed().shared(), began: now };
        all.push(new.clone());
        new
    }

    fn under_way(&self) -> MutexGuard<'_, Vec<UnderWay>> {
        // Every critical section leaves the list whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::SystemNetwork;

    /// The place that is found while there is a lookup that has ended, of which nobody knows it yet.
    async fn found_beside(began: Duration) -> SocketAddr {
        let (lookup, now) = (NameLookup::default(), SystemClock.now());
        let places = async { Ok(vec![OLD.parse().unwrap()]) }.boxed().shared();
        lookup.under_way().push(UnderWay { places, began: now.minus(began) });
        let (network, address) = (Arc::new(SystemNetwork) as Arc<dyn Network>, Address::parse(NEW).unwrap());
        let found = lookup.places(&network, &address, |_| now.plus(LEFT_AFTER)).await.unwrap();
        assert!(lookup.under_way().is_empty());
        found[0]
    }

    const OLD: &str = "127.0.0.1:1";
    const NEW: &str = "127.0.0.1:2";

    #[tokio::test]
    async fn what_a_lookup_has_found_is_for_a_caller_that_comes_soon_and_for_no_later_one() {
        const HOURS: Duration = Duration::from_secs(2 * 60 * 60);
        for (began, found) in [(HOURS, NEW), (LEFT_AFTER, NEW), (LEFT_AFTER / 2, OLD)] {
            assert_eq!(found_beside(began).await, found.parse().unwrap(), "{began:?} ago");
        }
    }
}
