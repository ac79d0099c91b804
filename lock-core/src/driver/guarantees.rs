//! The promises of a backend, as it is configured.

use std::fmt;

use serde::Serialize;

use crate::error::{Error, ErrorKind, Phase};

/// Whether a promise holds. There will be no fourth answer: programs match all three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Support {
    /// It holds.
    Yes,
    /// It does not hold.
    No,
    /// It holds unless this happens.
    Unless(&'static str),
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes => f.write_str("yes"),
            Self::No => f.write_str("no"),
            Self::Unless(why) => write!(f, "unless {why}"),
        }
    }
}

macro_rules! guarantees {
    ($($(#[doc = $doc:literal])+ $name:ident => $field:ident,)+) => {
        /// One promise that depends on the backend or its configuration.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
        #[non_exhaustive]
        pub enum Guarantee { $($(#[doc = $doc])+ $name,)+ }

        impl Guarantee {
            /// Every promise.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The promise's name, as in the documentation's table.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
        }

        /// The promises of a backend, as it is configured. An author starts from [`Guarantees::none`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct Guarantees { $($(#[doc = $doc])+ pub $field: Support,)+ }

        impl Guarantees {
            /// Promises nothing beyond what every backend must keep.
            #[must_use]
            pub const fn none() -> Self {
                Self { $($field: Support::No,)+ }
            }

            /// Whether one promise holds.
            #[must_use]
            pub const fn of(&self, guarantee: Guarantee) -> Support {
                match guarantee { $(Guarantee::$name => self.$field,)+ }
            }
        }
    };
}

guarantees! {
    /// Never two holders when the server crashes and comes back.
    ExclusionAcrossRestart => exclusion_across_restart,
    /// Never two holders when another server takes over.
    ExclusionAcrossFailover => exclusion_across_failover,
    /// Every grant carries a fencing token that grows, as long as the server keeps its data and no other one takes over.
    Fencing => fencing,
    /// Tokens keep growing when the server crashes and comes back.
    FencingAcrossRestart => fencing_across_restart,
    /// Tokens keep growing when another server takes over.
    FencingAcrossFailover => fencing_across_failover,
    /// Waiters are served in the order in which they came.
    Fifo => fifo,
    /// A release wakes the next waiter by a push, and no other.
    Push => push,
    /// Clients that disagree on the limit of a semaphore are told.
    LimitCheck => limit_check,
    /// `inspect` shows holders and waiters.
    Inspect => inspect,
    /// An operator can free a grant, and its holder is told who did so and why.
    ForceRelease => force_release,
    /// One owner may enter a reentrant lock from several processes.
    SharedOwner => shared_owner,
    /// Clients of other libraries can share a key with this one.
    ForeignClients => foreign_clients,
    /// Locks go on being renewed when the runtime ends on which the client was made. One that exists and that nobody drives has not
    /// ended: there nothing is renewed, and holders are told by their own clocks.
    RenewalAcrossRuntimes => renewal_across_runtimes,
    /// A record can be kept beside a mutex, and a late holder cannot write it.
    Record => record,
    /// A record that was written is there when the server crashes and comes back.
    RecordAcrossRestart => record_across_restart,
    /// A record that was written is there when another server takes over.
    RecordAcrossFailover => record_across_failover,
    /// A mutex that is held can be passed on to another client.
    Adoption => adoption,
    /// A mutex can be left: it ends after a time that its holder has chosen, by the server's clock, whatever becomes of the holder's client.
    Leave => leave,
}

impl Guarantees {
    /// Checks that every promise in `wanted` holds; `Unless` does not count as holding.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], listing everything that fails at once.
    pub fn require(&self, wanted: &[Guarantee]) -> Result<(), Error> {
        self.check(wanted, |support| support == Support::Yes)
    }

    /// Checks that every promise in `wanted` holds, be it with a reservation: `Unless` counts as holding.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], listing everything that fails at once.
    pub fn require_with_reservations(&self, wanted: &[Guarantee]) -> Result<(), Error> {
        self.check(wanted, |support| support != Support::No)
    }

    fn check(&self, wanted: &[Guarantee], suffices: fn(Support) -> bool) -> Result<(), Error> {
        let failing: Vec<_> = wanted
            .iter()
            .map(|guarantee| (guarantee, self.of(*guarantee)))
            .filter(|(_, support)| !suffices(*support))
            .map(|(guarantee, support)| format!("{} ({support})", guarantee.name()))
            .collect();
        if failing.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            Phase::Configure,
            format!("not guaranteed here: {}", failing.join(", ")),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_fails_is_listed_at_once() {
        let mut has = Guarantees::none();
        has.fencing = Support::Yes;
        has.fifo = Support::Unless("the server restarts");
        assert!(has.require(&[Guarantee::Fencing]).is_ok());
        let error = has.require(Guarantee::ALL).unwrap_err().to_string();
        assert!(error.contains("Fifo (unless the server restarts)") && error.contains("Push (no)"), "{error}");
        assert!(!error.contains("Fencing (yes)"));
        assert!(has.require_with_reservations(&[Guarantee::Fencing, Guarantee::Fifo]).is_ok());
        let error = has.require_with_reservations(Guarantee::ALL).unwrap_err().to_string();
        assert!(error.contains("Push (no)") && !error.contains("Fifo"), "{error}");
    }
}
