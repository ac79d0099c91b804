//! The places of a client's server, as its name was resolved.
//!
//! The name is resolved once, and every connection goes to the one place that answered. Only when that can be reached no more
//! the name is resolved again, at most once a second. If the server is then reached at another place, whatever is open to
//! the former one is closed: all of a client's requests go to one place.

use std::net::SocketAddr;
use std::time::Duration;

use lock_core::clock::BootInstant;

/// The number of places of one name that are tried: each has its part of the operation timeout.
const MOST: usize = 32;

/// The time for which a resolved name is believed although nobody answers at its places.
const BELIEVED: Duration = Duration::from_secs(1);

/// The places at which the server may be.
#[derive(Debug, Default)]
pub(super) struct ResolvedPlaces {
    known: Vec<SocketAddr>,
    /// The place that was reached last.
    reached: Option<SocketAddr>,
    resolved: Option<BootInstant>,
    is_in_doubt: bool,
}

impl ResolvedPlaces {
    /// Returns the places to try; nothing if the name has to be resolved first.
    pub(super) fn to_try(&self, now: BootInstant) -> Option<Vec<SocketAddr>> {
        let believed = self.resolved.is_some_and(|resolved| now.since(resolved) < BELIEVED);
        (!self.known.is_empty() && (!self.is_in_doubt || believed)).then(|| self.known.clone())
    }

    /// Whether there is a place to try, however doubtful.
    pub(super) fn is_any_known(&self) -> bool {
        !self.known.is_empty()
    }

    /// The name was resolved, or could not be: then what is known goes on being tried.
    pub(super) fn resolved(&mut self, now: BootInstant, found: Vec<SocketAddr>) {
        self.resolved = Some(now);
        if !found.is_empty() {
            self.known = found;
            self.known.truncate(MOST);
        }
    }

    /// The server was reached there; whether that is another place than before.
    pub(super) fn reached(&mut self, place: SocketAddr) -> bool {
        self.known = vec![place];
        self.is_in_doubt = false;
        self.reached.replace(place).is_some_and(|before| before != place)
    }

    /// Notes that nobody was reached.
    pub(super) fn in_doubt(&mut self) {
        self.is_in_doubt = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_resolved_again_once_a_second_while_nobody_is_reached() {
        let at = |ms| BootInstant::from_origin(Duration::from_millis(ms));
        let place = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut places = ResolvedPlaces::default();
        assert_eq!(places.to_try(at(0)), None);
        places.resolved(at(0), vec![place(1), place(2)]);
        assert_eq!(places.to_try(at(9000)), Some(vec![place(1), place(2)]));
        assert!(!places.reached(place(2)), "it is the first one");
        assert_eq!(places.to_try(at(9000)), Some(vec![place(2)]), "one place for all connections");
        places.in_doubt();
        assert_eq!(places.to_try(at(9000)), None);
        places.resolved(at(9000), Vec::new());
        assert_eq!(places.to_try(at(9900)), Some(vec![place(2)]), "nothing better is known");
        assert_eq!(places.to_try(at(10_000)), None);
        places.resolved(at(10_000), vec![place(3)]);
        assert!(places.reached(place(3)), "it has moved");
        assert_eq!(places.to_try(at(99_000)), Some(vec![place(3)]));
        places.resolved(at(99_000), (0..100).map(place).collect());
        assert_eq!(places.to_try(at(99_000)).unwrap().len(), MOST);
    }
}
