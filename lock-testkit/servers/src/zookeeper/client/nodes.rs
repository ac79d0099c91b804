//! Requests about nodes.

use lock_testkit::HarnessError;

use super::ZooKeeperClient;
use crate::zookeeper::connection::{Operation, Refusal, Reply};
use crate::zookeeper::jute::{JuteReader, Writer};
use crate::zookeeper::records::{Acl, NodeKind, Stat};
use crate::zookeeper::watch::Change;

const ANY_VERSION: i32 = -1;
const WATCH: bool = true;
const NO_WATCH: bool = false;
/// The owner of a node that is not ephemeral.
const NOBODY: i64 = 0;
/// The owner of a container.
const CONTAINER: i64 = i64::MIN;

/// Paths begin with a slash, and are those below the chroot. Every request may fail because no server answers within
/// five seconds, or because the server refuses it, as with `NoAuth`; then the error names the reason.
impl ZooKeeperClient {
    /// Makes a node that everybody may use, and answers its path, with its number if it gets one; `None` if there is such
    /// a node already.
    ///
    /// # Errors
    /// `NoNode`, if there is no parent.
    pub async fn create(&self, path: &str, data: &[u8], kind: NodeKind) -> Result<Option<String>, HarnessError> {
        self.create_at(&self.full(path), data, kind).await
    }

    /// Makes a persistent node without data, and whichever of its parents are missing, those of the chroot included.
    ///
    /// # Errors
    /// As said above.
    pub async fn create_all(&self, path: &str) -> Result<(), HarnessError> {
        let full = self.full(path);
        let ends = full.match_indices('/').skip(1).map(|(end, _)| end).chain([full.len()]);
        for end in ends.filter(|end| *end > 1) {
            self.create_at(&full[..end], b"", NodeKind::Persistent).await?;
        }
        Ok(())
    }

    async fn create_at(&self, full: &str, data: &[u8], kind: NodeKind) -> Result<Option<String>, HarnessError> {
        let operation = if kind == NodeKind::Container { Operation::CreateContainer } else { Operation::Create };
        let body = |writer: Writer| {
            let writer = writer.text(full).bytes(data);
            writer.each(&[Acl::open()], |writer, acl| acl.write(writer)).int(kind.flags())
        };
        let made = unless(Refusal::NODE_EXISTS, self.request(operation, body).await?)?;
        let made = made.map(|made| JuteReader::new(&made).text()).transpose()?;
        Ok(made.map(|made| self.below_chroot(&made)))
    }

    /// Deletes a node, whatever its version; whether there was one.
    ///
    /// # Errors
    /// `NotEmpty`, if it has children.
    pub async fn delete(&self, path: &str) -> Result<bool, HarnessError> {
        let body = |writer: Writer| writer.text(&self.full(path)).int(ANY_VERSION);
        Ok(self.ask(Operation::Delete, body).await?.is_some())
    }

    /// The figures of a node; `None` if there is no such node.
    ///
    /// # Errors
    /// As said above.
    pub async fn exists(&self, path: &str) -> Result<Option<Stat>, HarnessError> {
        let stat = self.look(Operation::Exists, path).await?;
        Ok(stat.map(|stat| Stat::read(&mut JuteReader::new(&stat))).transpose()?)
    }

    /// The data of a node; `None` if there is no such node.
    ///
    /// # Errors
    /// As said above.
    pub async fn data(&self, path: &str) -> Result<Option<Vec<u8>>, HarnessError> {
        let data = self.look(Operation::Data, path).await?;
        Ok(data.map(|data| JuteReader::new(&data).bytes()).transpose()?)
    }

    /// Replaces the data of a node, whatever its version; whether there was one.
    ///
    /// # Errors
    /// As said above.
    pub async fn set_data(&self, path: &str, data: &[u8]) -> Result<bool, HarnessError> {
        let body = |writer: Writer| writer.text(&self.full(path)).bytes(data).int(ANY_VERSION);
        Ok(self.ask(Operation::SetData, body).await?.is_some())
    }

    /// The access control list of a node; `None` if there is no such node.
    ///
    /// # Errors
    /// As said above.
    pub async fn acl(&self, path: &str) -> Result<Option<Vec<Acl>>, HarnessError> {
        let acl = self.ask(Operation::Acl, |writer| writer.text(&self.full(path))).await?;
        Ok(acl.map(|acl| JuteReader::new(&acl).each(Acl::read)).transpose()?)
    }

    /// Replaces the access control list of a node; whether there was one.
    ///
    /// # Errors
    /// `InvalidACL`, if the server does not understand it.
    pub async fn set_acl(&self, path: &str, acl: &[Acl]) -> Result<bool, HarnessError> {
        let body = |writer: Writer| {
            let writer = writer.text(&self.full(path));
            writer.each(acl, |writer, acl| acl.write(writer)).int(ANY_VERSION)
        };
        Ok(self.ask(Operation::SetAcl, body).await?.is_some())
    }

    /// The names of a node's children, in order; `None` if there is no such node.
    ///
    /// # Errors
    /// As said above.
    pub async fn children(&self, path: &str) -> Result<Option<Vec<String>>, HarnessError> {
        let Some(names) = self.look(Operation::Children, path).await? else { return Ok(None) };
        let mut names = JuteReader::new(&names).each(JuteReader::text)?;
        names.sort_unstable();
        Ok(Some(names))
    }

    /// Lists the children and watches for one more of them, or one less; see [`children`](ZooKeeperClient::children).
    ///
    /// # Errors
    /// As said above.
    pub async fn watch_children(&self, path: &str) -> Result<Option<(Vec<String>, Change)>, HarnessError> {
        let (names, change) = self.look_and_watch(Operation::Children, path).await?;
        let Some(names) = names else { return Ok(None) };
        Ok(Some((JuteReader::new(&names).each(JuteReader::text)?, change)))
    }

    /// Watches for a change of a node's data, or its deletion; `None` if there is no such node, and then there is no
    /// watch either.
    ///
    /// # Errors
    /// As said above.
    pub async fn watch_data(&self, path: &str) -> Result<Option<Change>, HarnessError> {
        let (data, change) = self.look_and_watch(Operation::Data, path).await?;
        Ok(data.map(|_| change))
    }

    /// The paths of all nodes below this one, each before those below it.
    ///
    /// # Errors
    /// As said above.
    pub async fn descendants(&self, path: &str) -> Result<Vec<String>, HarnessError> {
        let (mut found, mut unseen) = (Vec::new(), vec![path.trim_end_matches('/').to_owned()]);
        while let Some(parent) = unseen.pop() {
            let names = self.children(if parent.is_empty() { "/" } else { &parent }).await?;
            // Last in, first out: in order.
            unseen.extend(names.unwrap_or_default().iter().rev().map(|name| format!("{parent}/{name}")));
            found.push(parent);
        }
        found.remove(0);
        Ok(found)
    }

    /// The sessions with whose end a node below this one ends.
    ///
    /// # Errors
    /// As said above.
    pub async fn sessions_below(&self, path: &str) -> Result<Vec<i64>, HarnessError> {
        let mut sessions = Vec::new();
        for node in self.descendants(path).await? {
            let owner = self.exists(&node).await?.map_or(NOBODY, |stat| stat.ephemeral_owner);
            if owner != NOBODY && owner != CONTAINER && !sessions.contains(&owner) {
                sessions.push(owner);
            }
        }
        Ok(sessions)
    }

    /// The paths of all nodes that end with this session, as servers know them: from the root, whatever the chroot.
    ///
    /// # Errors
    /// As said above; `Unimplemented` by a server older than 3.6.
    pub async fn ephemerals(&self) -> Result<Vec<String>, HarnessError> {
        let paths = self.request(Operation::Ephemerals, |writer| writer.text("/")).await??;
        Ok(JuteReader::new(&paths).each(JuteReader::text)?)
    }

    /// Waits until the server that answers here knows what the leader knows. Without it, a follower may answer from a
    /// state that is over.
    ///
    /// # Errors
    /// As said above.
    pub async fn sync(&self, path: &str) -> Result<(), HarnessError> {
        self.ask(Operation::Sync, |writer| writer.text(&self.full(path))).await.map(drop)
    }

    async fn look(&self, operation: Operation, path: &str) -> Result<Option<Vec<u8>>, HarnessError> {
        self.ask(operation, |writer| writer.text(&self.full(path)).bool(NO_WATCH)).await
    }

    async fn look_and_watch(
        &self,
        operation: Operation,
        path: &str,
    ) -> Result<(Option<Vec<u8>>, Change), HarnessError> {
        let full = self.full(path);
        let (answer, change) = self.watch(operation, &full, |writer| writer.text(&full).bool(WATCH)).await?;
        Ok((unless(Refusal::NO_NODE, answer)?, change))
    }

    /// The answer about a node; `None` if there is no such node.
    async fn ask(
        &self,
        operation: Operation,
        body: impl FnOnce(Writer) -> Writer,
    ) -> Result<Option<Vec<u8>>, HarnessError> {
        unless(Refusal::NO_NODE, self.request(operation, body).await?)
    }
}

/// `None` for this one refusal; an error for every other.
fn unless(expected: Refusal, answer: Reply) -> Result<Option<Vec<u8>>, HarnessError> {
    match answer {
        Ok(body) => Ok(Some(body)),
        Err(refusal) if refusal == expected => Ok(None),
        Err(refusal) => Err(refusal.into()),
    }
}
