//! One ZooKeeper server: the textbook recipe, ours, the client crate's own lock, and Curator.

use std::time::Duration;

use bench_support::Outcome;
use lock_testkit_servers::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use lock_zk::{ZkConfig, ZkLocks};
use zookeeper_client::{Acls, Client, CreateMode, Error, LockOptions, LockPrefix};

use crate::Field;
use crate::contender::{Contender, Local, Turn};
use crate::foreign::Foreign;
use crate::{ours, processes};

const JVM: Duration = Duration::from_secs(10);
const STEM: &str = "_c_0f8fad5b-d9cb-469f-a165-70867728950e-lock-";

pub(crate) const SERVER: &str = "zookeeper";

pub(crate) async fn field() -> Outcome<Field> {
    let server = ZooKeeperServer::start_with(&ZooKeeperOptions::new().for_benchmarks()).await?;
    let address = server.address().to_owned();
    let mut contenders = processes::also(SERVER, std::slice::from_ref(&address), local(&address).await?);
    for kind in ["mutex", "write", "permit"] {
        let name = format!("Curator 5.9.0 {kind}");
        contenders.extend(Foreign::start("PEER_CURATOR", &[&address, kind], &name, false, JVM).await?);
    }
    Ok(Field { server: Box::new(server), title: "On one ZooKeeper server", contenders })
}

/// The contenders of this program.
pub(crate) async fn local(address: &str) -> Outcome<Vec<Box<dyn Contender>>> {
    let mut contenders = vec![textbook(address).await?];
    let config = ZkConfig::new(format!("zk://{address}")).with_prefix("peers");
    let locks = ZkLocks::connect_with(config.with_tick_time(Duration::from_millis(200))).await?;
    contenders.extend(ours::kinds("lock-zk", &locks.into()));
    contenders.push(own(address).await?);
    Ok(contenders)
}

async fn textbook(address: &str) -> Outcome<Box<dyn Contender>> {
    let client = Client::connect(address).await?;
    Ok(Local::boxed("floor: the textbook's recipe", false, move |_, name| Textbook {
        client: client.clone(),
        directory: format!("/textbook/{name}"),
        is_made: false,
    }))
}

/// A node in the queue, a watch on the node before, and the listing again.
struct Textbook {
    client: Client,
    directory: String,
    is_made: bool,
}

impl Turn for Textbook {
    async fn go(&mut self, holds: impl Fn() + Send + Sync) -> Outcome {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let stem = format!("{}/{STEM}", self.directory);
        let (number, mut line) = loop {
            if !self.is_made {
                self.client.mkdir(&self.directory, &CreateMode::Container.with_acls(Acls::anyone_all())).await?;
                self.is_made = true;
            }
            let created = self.client.create(&stem, &[b'x'; 240], &options);
            let listed = self.client.list_children(&self.directory);
            match created.await {
                Ok((_, number)) => break (number, listed.await?),
                // The servers remove a container that is empty when they look.
                Err(Error::NoNode) => self.is_made = false,
                Err(error) => return Err(error.into()),
            }
        };
        let mine = number.to_string();
        loop {
            let before = line
                .iter()
                .filter_map(|other| {
                    other.strip_prefix(STEM).filter(|other| **other < *mine).map(|number| (number, other))
                })
                .max_by_key(|(number, _)| *number);
            let Some((before, _)) = before else { break };
            match self.client.get_and_watch_data(&format!("{stem}{before}")).await {
                Ok((_, _, watcher)) => drop(watcher.changed().await),
                Err(Error::NoNode) => {}
                Err(error) => return Err(error.into()),
            }
            line = self.client.list_children(&self.directory).await?;
        }
        holds();
        Ok(self.client.delete(&format!("{stem}{mine}"), None).await?)
    }
}

async fn own(address: &str) -> Outcome<Box<dyn Contender>> {
    let client = Client::connect(address).await?;
    Ok(Local::boxed("zookeeper-client 0.11.2's own, deleted in the background", false, move |_, name| Own {
        client: client.clone(),
        directory: format!("/own/{name}"),
    }))
}

/// The lock that the client crate brings.
struct Own {
    client: Client,
    directory: String,
}

impl Turn for Own {
    async fn go(&mut self, holds: impl Fn() + Send + Sync) -> Outcome {
        let options = LockOptions::new(Acls::anyone_all())
            .with_ancestor_options(CreateMode::Persistent.with_acls(Acls::anyone_all()))?;
        let prefix = LockPrefix::new_curator(&self.directory, "lock-")?;
        let held = self.client.lock(prefix, b"", options).await?;
        holds();
        drop(held);
        Ok(())
    }
}
