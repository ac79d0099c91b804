//! The baselines: the same requests by the same client crate, without any lock library.

use std::future::Future;

use zookeeper_client::{Acls, Client, CreateMode, Error};

use crate::{Bench, Outcome};

/// As long as what our nodes say.
const DATA: [u8; 240] = [b'x'; 240];
const STEM: &str = "_c_0f8fad5b-d9cb-469f-a165-70867728950e-lock-";

/// A directory of nodes in the queue, by a session of its own.
#[derive(Debug, Clone)]
pub(crate) struct Plain {
    client: Client,
    directory: String,
}

impl Plain {
    pub(crate) async fn connect(bench: &Bench, directory: &str) -> Outcome<Self> {
        Self::connect_to(bench.server.url().trim_start_matches("zk://"), directory).await
    }

    /// A directory of nodes in the queue, by a session over this address.
    pub(crate) async fn connect_to(servers: &str, directory: &str) -> Outcome<Self> {
        let client = Client::connect(servers).await?;
        client.mkdir(directory, &CreateMode::Container.with_acls(Acls::anyone_all())).await?;
        Ok(Self { client, directory: directory.to_owned() })
    }

    /// This session with a directory of this number below.
    pub(crate) fn below(&self, number: usize) -> Self {
        Self { client: self.client.clone(), directory: format!("{}/{number}", self.directory) }
    }

    /// Makes the directory.
    pub(crate) async fn make(&self) -> Outcome {
        Ok(self.client.mkdir(&self.directory, &CreateMode::Container.with_acls(Acls::anyone_all())).await?)
    }

    /// A place in the queue and the line, as the recipe asks for them: without waiting for the first answer.
    async fn stand(&self) -> Outcome<(String, Vec<String>)> {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let stem = format!("{}/{STEM}", self.directory);
        let created = self.client.create(&stem, &DATA, &options);
        let listed = self.client.list_children(&self.directory);
        let (_, number) = created.await?;
        Ok((format!("{STEM}{number}"), listed.await?))
    }

    fn leave(&self, name: &str) -> impl Future<Output = Result<(), Error>> + '_ {
        self.client.delete(&format!("{}/{name}", self.directory), None)
    }

    /// The requests of an uncontended lock and release.
    pub(crate) async fn cycle(&self) -> Outcome {
        let (name, line) = self.stand().await?;
        assert!(line.contains(&name), "the node is not listed");
        Ok(self.leave(&name).await?)
    }

    /// A turn by the textbook: a watch on the node before, and the listing again.
    pub(crate) async fn turn(&self) -> Outcome {
        let (name, mut line) = self.stand().await?;
        loop {
            let mine = &name[STEM.len()..];
            let before =
                line.iter().filter(|other| &other[STEM.len()..] < mine).max_by_key(|other| &other[STEM.len()..]);
            let Some(before) = before else { break };
            match self.client.get_and_watch_data(&format!("{}/{before}", self.directory)).await {
                Ok((_, _, watcher)) => drop(watcher.changed().await),
                Err(Error::NoNode) => {}
                Err(error) => return Err(error.into()),
            }
            line = self.client.list_children(&self.directory).await?;
        }
        Ok(self.leave(&name).await?)
    }
}
