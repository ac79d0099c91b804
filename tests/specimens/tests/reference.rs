//! The list is fair: a sound lock of three commands, without queue, push, tokens or operators, passes every case that
//! its modest promises admit, also those with holders in processes of their own.

use std::process::ExitCode;

use async_trait::async_trait;
use lock_core::{Error, Locks};
use lock_testkit::{Admin, GroundTruth, Harness, Linked, Missing};
use lock_testkit_servers::redis::RedisServer;
use specimens::redis::{Recipe, Specimen};

struct Reference {
    specimen: Specimen,
    url: String,
    /// Kept alive; `None` in a child process, which uses its parent's.
    _server: Option<RedisServer>,
}

impl Reference {
    fn at(url: String, server: Option<RedisServer>) -> Self {
        Self { specimen: Specimen::new(Recipe::Reference, url.clone()), url, _server: server }
    }
}

#[async_trait]
impl Harness for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    async fn start() -> Result<Self, Missing> {
        let server = RedisServer::start().await?;
        let url = server.url().to_owned();
        Ok(Self::at(url, Some(server)))
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        self.specimen.connect(namespace).await
    }

    fn endpoint(&self) -> Option<String> {
        Some(self.url.clone())
    }

    async fn attach(endpoint: &str) -> Result<Self, Missing> {
        Ok(Self::at(endpoint.to_owned(), None))
    }

    fn ground_truth(&self) -> Option<&dyn GroundTruth> {
        self.specimen.ground_truth()
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.specimen.admin()
    }

    fn linked(&self) -> Option<&dyn Linked> {
        self.specimen.linked()
    }
}

fn main() -> ExitCode {
    lock_testkit::main::<Reference>()
}
