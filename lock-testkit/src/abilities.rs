//! The abilities of a backend and the needs of a case: they decide whether the case runs or is ignored.

use lock_core::{Error, Guarantee, Guarantees, Locks, Support};

use crate::adapters::Form;
use crate::harness::{Admin, DisposableServers, Harness, Linked, ServerFault};
use crate::proxy::Protocol;

/// The reason for which nothing can be done to one reply.
const OPAQUE: &str =
    "the proxy does not know the protocol, and which reply belongs to which request (`Linked::protocol`)";

/// The abilities of a backend under test: its declared guarantees, its kinds, and what its harness offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Abilities {
    guarantees: Guarantees,
    reentrant: bool,
    rwlock: bool,
    semaphore: bool,
    processes: bool,
    ground_truth: bool,
    admin: bool,
    garbage: bool,
    foreign: bool,
    linked: bool,
    replies: bool,
    shows_names: bool,
    refusals: bool,
    sessions: bool,
    faults: &'static [ServerFault],
}

/// A requirement of a case beside a mutex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The reentrant lock.
    Reentrant,
    /// The read-write lock.
    RwLock,
    /// The semaphore.
    Semaphore,
    /// A promise that the backend makes, perhaps with a reservation.
    Promise(Guarantee),
    /// A promise that it makes without any.
    Always(Guarantee),
    /// A promise that it does not make: it says so instead.
    Without(Guarantee),
    /// A second process that reaches the same servers.
    Processes,
    /// A harness that can read the servers' state.
    GroundTruth,
    /// A harness that can delete entries.
    Admin,
    /// One that can spoil them, too.
    Garbage,
    /// A harness that can act as a client of another library.
    Foreign,
    /// A harness whose servers can be reached through links that the suite can trouble.
    Links,
    /// Links on which it is known which reply belongs to which request.
    Replies,
    /// Links on which it is known which requests are about a lock of the case, and which replies belong to them.
    Requests,
    /// Links, and servers of which is known how they refuse requests.
    Refusals,
    /// A harness that can end sessions behind their clients' backs.
    Sessions,
    /// A harness that can start servers to which this can be done.
    DisposableServer(ServerFault),
}

impl Need {
    /// Returns the kind of lock that a form is made of, if it is no mutex.
    fn of_form(form: Form) -> Option<Self> {
        match form {
            Form::Mutex => None,
            Form::Write => Some(Self::RwLock),
            Form::Single | Form::Drained => Some(Self::Semaphore),
            Form::Reentrant => Some(Self::Reentrant),
        }
    }
}

impl Abilities {
    /// Asks a client and the harness; no traffic beyond the connection.
    pub(crate) async fn of(harness: &dyn Harness) -> Result<Self, Error> {
        let locks: Locks = harness.connect("abilities").await?;
        Ok(Self {
            guarantees: locks.guarantees(),
            reentrant: locks.reentrant("abilities").is_some(),
            rwlock: locks.rwlock("abilities").is_some(),
            semaphore: locks.semaphore("abilities", 1).is_some(),
            processes: harness.endpoint().is_some(),
            ground_truth: harness.ground_truth().is_some(),
            admin: harness.admin().is_some(),
            garbage: harness.admin().is_some_and(Admin::takes_garbage),
            foreign: harness.foreign().is_some(),
            linked: harness.linked().is_some(),
            replies: harness.linked().is_some_and(|linked| linked.protocol() != Protocol::Opaque),
            shows_names: harness.linked().is_some_and(Linked::shows_names),
            refusals: harness.linked().is_some_and(|linked| !linked.refusals().is_empty()),
            sessions: harness.sessions().is_some(),
            faults: harness.disposable_servers().map(DisposableServers::faults).unwrap_or_default(),
        })
    }

    /// Whether the backend promises this, perhaps with a reservation: nothing that would end the promise happens in
    /// these cases.
    pub(crate) fn promises(&self, guarantee: Guarantee) -> bool {
        self.guarantees.of(guarantee) != Support::No
    }

    /// Whether it promises this whatever happens.
    pub(crate) fn always_promises(&self, guarantee: Guarantee) -> bool {
        self.guarantees.of(guarantee) == Support::Yes
    }

    /// Returns why a case with these needs cannot run in this form here; `None` if it can.
    pub(crate) fn lacking(&self, form: Form, needs: &[Need]) -> Option<String> {
        Need::of_form(form).into_iter().chain(needs.iter().copied()).find_map(|need| self.lacks(need))
    }

    fn lacks(&self, need: Need) -> Option<String> {
        let (there, reason) = match need {
            Need::Reentrant => (self.reentrant, "the backend has no reentrant lock".to_owned()),
            Need::RwLock => (self.rwlock, "the backend has no read-write lock".to_owned()),
            Need::Semaphore => (self.semaphore, "the backend has no semaphore".to_owned()),
            Need::Promise(guarantee) => {
                (self.promises(guarantee), format!("the backend does not promise {}", guarantee.name()))
            }
            Need::Always(guarantee) => {
                let reason = format!("the backend does not promise {} without reservation", guarantee.name());
                (self.always_promises(guarantee), reason)
            }
            Need::Without(guarantee) => {
                (!self.promises(guarantee), format!("the backend promises {}", guarantee.name()))
            }
            Need::Processes => (self.processes, "the backend lives in one process (`Harness::endpoint`)".to_owned()),
            Need::GroundTruth => (self.ground_truth, "the harness cannot read the servers' state (`Harness::ground_truth`)".to_owned()),
            Need::Admin => (self.admin, "the harness cannot change entries behind the backend's back (`Harness::admin`)".to_owned()),
            Need::Garbage => (self.garbage, "whatever fits in a lock's place is somebody's lock (`Admin::takes_garbage`)".to_owned()),
            Need::Foreign => (self.foreign, "the harness has no client of another library (`Harness::foreign`)".to_owned()),
            Need::Links => (self.linked, "the harness cannot lead a client's connections through a proxy (`Harness::linked`): nothing is known of lost replies, repeated requests and cancellations".to_owned()),
            Need::Replies => (self.replies, OPAQUE.to_owned()),
            Need::Requests if !self.replies => (false, OPAQUE.to_owned()),
            Need::Requests => (self.shows_names, "the requests do not show whose lock they are about (`Linked::shows_names`)".to_owned()),
            Need::Refusals => (self.refusals, "the harness does not say how its servers refuse requests (`Linked::refusals`)".to_owned()),
            Need::DisposableServer(fault) => (self.faults.contains(&fault), format!("the harness has no servers for a {fault:?} (`Harness::disposable_servers`)")),
            Need::Sessions => (self.sessions, "the harness knows no sessions that it could end (`Harness::sessions`)".to_owned()),
        };
        (!there).then_some(reason)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use lock_core::memory::{MemoryConfig, MemoryStore};

    use super::*;
    use crate::error::Missing;
    use crate::run::{Outcome, run_case};

    /// Links over which nothing goes.
    struct Silent {
        store: MemoryStore,
        protocol: Protocol,
        shows_names: bool,
    }

    #[async_trait]
    impl Harness for Silent {
        fn name(&self) -> &'static str {
            "silent"
        }

        async fn start() -> Result<Self, Missing> {
            Err(Missing::new("it is made by hand"))
        }

        async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
            let mut config = MemoryConfig::default();
            config.namespace = namespace.to_owned();
            Ok(self.store.connect_with(config)?.into())
        }

        fn linked(&self) -> Option<&dyn Linked> {
            Some(self)
        }
    }

    #[async_trait]
    impl Linked for Silent {
        fn protocol(&self) -> Protocol {
            self.protocol
        }

        fn shows_names(&self) -> bool {
            self.shows_names
        }

        fn servers(&self) -> Vec<String> {
            Vec::new()
        }

        async fn connect_at(&self, namespace: &str, _addresses: &[String]) -> Result<Locks, Error> {
            self.connect(namespace).await
        }
    }

    async fn outcome(id: &str, protocol: Protocol, shows_names: bool) -> Outcome {
        run_case(Arc::new(Silent { store: MemoryStore::new(), protocol, shows_names }), id).await
    }

    #[tokio::test]
    async fn a_case_about_one_request_is_ignored_where_requests_show_no_names() {
        for id in ["C-W13", "C-W20", "C-F05", "C-ML06", "C-RC06"] {
            let hashed = outcome(id, Protocol::Resp, false).await;
            assert!(
                matches!(&hashed, Outcome::Ignored(why) if why.contains("`Linked::shows_names`")),
                "{id}: {hashed:?}"
            );
            let opaque = outcome(id, Protocol::Opaque, true).await;
            assert!(matches!(&opaque, Outcome::Ignored(why) if why.contains("`Linked::protocol`")), "{id}: {opaque:?}");
        }
    }

    #[tokio::test]
    async fn requests_that_nobody_sees_are_no_fault_of_the_lock() {
        let outcome = outcome("C-ML06", Protocol::Resp, true).await;
        assert!(
            matches!(&outcome, Outcome::Unknown(why) if why.contains("the harness failed, not the lock")),
            "{outcome:?}"
        );
    }
}
