//! Broken records beside a sound mutex on Redis.
//!
//! The mistakes:
//! - [`Recipe::AcceptsAnybody`], a write that does not look who holds the lock: a former holder, whose request was late, writes
//!   beside the next one.
//! - [`Recipe::Unstamped`], a grant that leaves the record as it is: until the next holder has written, nobody can tell whose term
//!   its data are of.
//! - [`Recipe::ForgetsData`], a stamp that begins a new record: a holder that ends before it writes has thrown the data away.
//! - [`Recipe::CutsShort`], a place for 1,000 bytes, in which longer data end early.
//! - [`Recipe::DeniesLostWrites`], a write that counts as not done when its reply is lost.
//! - [`Recipe::ByHalves`], who has written first, and the data in a second request: in between, they are another's.
//! - [`Recipe::AppendsAgain`], data that are appended, and appended once more after a lost reply.
//! - [`Recipe::InMemory`], a promise to survive a restart, at a server that writes nothing down.
//! - [`Recipe::Remembers`], a client that believes in the record that it saw last: what the servers have forgotten, it brings back.
//! - [`Recipe::Pinned`], the address of the server that led when the client was made.

mod client;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{Error, Locks};
use lock_testkit::proxy::Protocol;
use lock_testkit::{DisposableServer, DisposableServers, Harness, Linked, Missing, ServerFault};
use lock_testkit_servers::redis::{RedisOptions, RedisServer, SentinelDeployment};
use lock_testkit_servers::resp::Resp;

use self::client::Records;
use super::Specimen;
use super::leader::Way;
use crate::Rejection;

/// A way to keep a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Recipe {
    /// One script that looks who holds the lock, and that nobody newer was at the record. Sound as far as the cases here go.
    Reference,
    /// Writes whoever holds.
    AcceptsAnybody,
    /// Leaves the record as it is until it is written.
    Unstamped,
    /// Begins a new record with each stamp.
    ForgetsData,
    /// Keeps 1,000 bytes.
    CutsShort,
    /// Takes a lost reply for a refusal.
    DeniesLostWrites,
    /// Writes in two requests.
    ByHalves,
    /// Appends, again after a lost reply.
    AppendsAgain,
    /// Keeps its promises as long as its server runs.
    InMemory,
    /// Believes in what it has seen last.
    Remembers,
    /// Stays with the server that led at the beginning.
    Pinned,
}

/// Every specimen with the case that rejects it.
pub const REJECTIONS: &[Rejection<Recipe>] = &[
    Rejection { recipe: Recipe::AcceptsAnybody, case: "C-RC06", symptom: "after the next grant says that it is done" },
    Rejection {
        recipe: Recipe::AcceptsAnybody,
        case: "C-RC10b",
        symptom: "former holder's write says that it is done",
    },
    Rejection { recipe: Recipe::Unstamped, case: "C-RC01", symptom: "others do not see the stamp" },
    Rejection { recipe: Recipe::ForgetsData, case: "C-RC04", symptom: "data: []" },
    Rejection { recipe: Recipe::CutsShort, case: "C-RC02", symptom: "what fits was cut" },
    Rejection { recipe: Recipe::DeniesLostWrites, case: "C-RC07", symptom: "told as definitely not" },
    Rejection { recipe: Recipe::ByHalves, case: "C-RC07", symptom: "written by halves" },
    Rejection { recipe: Recipe::AppendsAgain, case: "C-RC07", symptom: "or twice" },
    Rejection { recipe: Recipe::InMemory, case: "C-RC09", symptom: "found None, expected" },
    Rejection { recipe: Recipe::Remembers, case: "C-RC10", symptom: "what was forgotten is found" },
    Rejection { recipe: Recipe::Pinned, case: "C-RC11", symptom: "the lock is granted: not within" },
];

impl Recipe {
    /// A short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reference => "a sound record",
            Self::AcceptsAnybody => "a record that anybody writes",
            Self::Unstamped => "a record without a stamp",
            Self::ForgetsData => "a stamp that begins a new record",
            Self::CutsShort => "a record of 1,000 bytes",
            Self::DeniesLostWrites => "a lost reply taken for a refusal",
            Self::ByHalves => "a record that is written by halves",
            Self::AppendsAgain => "a record that is appended to",
            Self::InMemory => "a record that is not written down",
            Self::Remembers => "a record that the client remembers",
            Self::Pinned => "a record at a server that is asked for once",
        }
    }
}

/// The harness of one record beside a mutex on a Redis server.
#[derive(Debug)]
pub struct RecordSpecimen {
    recipe: Recipe,
    url: String,
}

impl RecordSpecimen {
    /// This recipe on the server at `redis://host:port/`.
    #[must_use]
    pub fn new(recipe: Recipe, url: impl Into<String>) -> Self {
        Self { recipe, url: url.into() }
    }

    /// A client of the server to which these ways lead: the lock's and the record's.
    fn client(&self, ways: [Way; 2], namespace: &str) -> Result<Locks, Error> {
        Records::client(self.recipe, ways, namespace)
    }

    async fn ways(&self, url: &str) -> Result<[Way; 2], Error> {
        let recipe = if self.recipe == Recipe::Pinned { super::Recipe::Pinned } else { super::Recipe::Reference };
        Ok([Way::to(url, recipe).await?, Way::to(url, recipe).await?])
    }
}

#[async_trait]
impl Harness for RecordSpecimen {
    fn name(&self) -> &'static str {
        self.recipe.name()
    }

    async fn start() -> Result<Self, Missing> {
        Err(Missing::new("a specimen is made of a recipe and a running server"))
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        self.client(self.ways(&self.url).await?, namespace)
    }

    fn linked(&self) -> Option<&dyn Linked> {
        Some(self)
    }

    fn disposable_servers(&self) -> Option<&dyn DisposableServers> {
        Some(self)
    }
}

#[async_trait]
impl Linked for RecordSpecimen {
    fn protocol(&self) -> Protocol {
        Protocol::Resp
    }

    fn servers(&self) -> Vec<String> {
        Specimen::new(super::Recipe::Reference, &self.url).servers()
    }

    async fn connect_at(&self, namespace: &str, addresses: &[String]) -> Result<Locks, Error> {
        let redis = Arc::new(Resp::new(addresses.concat()));
        self.client([Way::Known(redis.clone()), Way::Known(redis)], namespace)
    }
}

#[async_trait]
impl DisposableServers for RecordSpecimen {
    fn faults(&self) -> &'static [ServerFault] {
        &[ServerFault::FailOver, ServerFault::Restart, ServerFault::Flush]
    }

    async fn start(&self, fault: ServerFault) -> Result<Box<dyn DisposableServer>, Missing> {
        let options = RedisOptions::new();
        // The flaw.
        let options = if self.recipe == Recipe::InMemory { options } else { options.persistent() };
        Ok(match fault {
            ServerFault::FailOver => Box::new(SentinelDeployment::start_own().await?),
            _ => Box::new(RedisServer::start_with(&options).await?),
        })
    }

    async fn connect_to(&self, server: &dyn DisposableServer, namespace: &str) -> Result<Locks, Error> {
        self.client(self.ways(server.url()).await?, namespace)
    }
}
