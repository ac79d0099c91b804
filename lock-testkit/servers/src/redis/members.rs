//! The nodes of a cluster as one of them knows them.

use std::ops::RangeInclusive;

use lock_testkit::HarnessError;

use super::server::RedisServer;
use super::server::status::field;

/// The members of a cluster, as one of them knows them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Members(Vec<NodeRecord>);

/// A node of a cluster, as another one knows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NodeRecord {
    pub(super) id: String,
    /// `host:port`.
    pub(super) address: String,
    /// Whether nothing is wrong with it: no handshake, no failure, no missing address.
    sound: bool,
    /// The id of the node that it follows; `None` for a master.
    pub(super) follows: Option<String>,
    slots: Vec<RangeInclusive<u16>>,
}

impl Members {
    /// Returns the nodes that this node knows.
    pub(super) async fn known_to(node: &RedisServer) -> Result<Self, HarnessError> {
        let told = node.client()?.command(&["CLUSTER", "NODES"]).await?.to_string();
        let members: Option<Vec<_>> = told.lines().map(NodeRecord::parse).collect();
        let mut members = members.ok_or_else(|| HarnessError::new(format!("no list of cluster nodes: {told}")))?;
        // Each node names itself first.
        members.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(Self(members))
    }

    pub(super) fn all(&self) -> &[NodeRecord] {
        &self.0
    }

    pub(super) fn at(&self, address: &str) -> Result<&NodeRecord, HarnessError> {
        let member = self.0.iter().find(|member| member.address == address);
        member.ok_or_else(|| HarnessError::new(format!("the node {address} is not known")))
    }

    pub(super) fn owner_of(&self, slot: u16) -> Result<&NodeRecord, HarnessError> {
        let owner = self.0.iter().find(|member| member.slots.iter().any(|slots| slots.contains(&slot)));
        owner.ok_or_else(|| HarnessError::new(format!("nobody owns the slot {slot}")))
    }

    pub(super) fn followers_of<'a>(&'a self, master: &'a NodeRecord) -> impl Iterator<Item = &'a NodeRecord> {
        self.0.iter().filter(|member| member.sound && member.follows.as_ref() == Some(&master.id))
    }

    /// An error unless there are so many members, and nothing is wrong with any of them.
    pub(super) fn complete(&self, count: usize) -> Result<(), HarnessError> {
        if self.0.len() == count && self.0.iter().all(|member| member.sound) {
            return Ok(());
        }
        Err(HarnessError::new(format!("not {count} sound members: {:?}", self.0)))
    }
}

impl NodeRecord {
    /// `id host:port@bus[,name] flags master ping pong epoch link slots...`
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let id = words.next()?.to_owned();
        let address = words.next()?.split('@').next()?.to_owned();
        let flags: Vec<_> = words.next()?.split(',').collect();
        let follows = words.next().filter(|master| *master != "-").map(str::to_owned);
        // Open slots, such as `[93->-id]`, are no ranges.
        let slots = words.skip(4).filter_map(range).collect();
        let sound = flags.iter().all(|flag| matches!(*flag, "myself" | "master" | "slave" | "nofailover"));
        Some(Self { id, address, sound, follows, slots })
    }
}

/// `7` or `7-9`.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// An error unless this node says that the cluster works.
pub(super) async fn works_for(node: &RedisServer) -> Result<(), HarnessError> {
    let info = node.client()?.command(&["CLUSTER", "INFO"]).await?.to_string();
    match field(&info, "cluster_state") {
        Some("ok") => Ok(()),
        state => Err(HarnessError::new(format!("the cluster is {state:?} to {}", node.address()))),
    }
}

/// Returns the name of a node in its cluster.
pub(super) async fn own_id(node: &RedisServer) -> Result<String, HarnessError> {
    Ok(node.client()?.command(&["CLUSTER", "MYID"]).await?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_breaks_the_parser() {
        let samples = [
            "07c3 127.0.0.1:7000@17000,host master - 0 1426238317239 4 connected 0-5460 [93->-67ed] 7",
            "67ed 127.0.0.1:7001@17001 myself,slave 07c3 0 0 2 connected",
            "67ed :0@0 fail?,noaddr - 0 0 0 disconnected 65535-0",
        ];
        lock_testkit::fuzz::texts("nodes of a cluster", &samples, |line| {
            let Some(member) = NodeRecord::parse(line) else { return };
            assert!(line.starts_with(&member.id) && !member.id.contains(' ') && !member.address.contains(['@', ' ']));
            assert!(member.slots.len() <= line.split(' ').count());
        });
    }

    #[test]
    fn a_line_is_read() {
        let master =
            "07c3 127.0.0.1:30004@31004,host myself,master - 0 1426238317239 4 connected 0-5460 7000 [93->-67ed]";
        let master = NodeRecord::parse(master).unwrap();
        assert_eq!((master.id.as_str(), master.address.as_str()), ("07c3", "127.0.0.1:30004"));
        assert!(master.sound && master.follows.is_none());
        assert_eq!(master.slots, [0..=5460, 7000..=7000]);
        let replica =
            NodeRecord::parse("e7d1 127.0.0.1:30005@31005 slave,fail? 07c3 0 1426238316232 2 disconnected").unwrap();
        assert_eq!(replica.follows.as_deref(), Some("07c3"));
        assert!(!replica.sound && replica.slots.is_empty());
    }

    #[test]
    fn members_are_found_by_what_they_have() {
        let lines = ["a 127.0.0.1:1@2 master - 0 0 1 connected 0-99", "b 127.0.0.1:3@4 slave a 0 0 1 connected"];
        let members = Members(lines.iter().filter_map(|line| NodeRecord::parse(line)).collect());
        assert_eq!(members.owner_of(99).unwrap().id, "a");
        assert!(members.owner_of(100).is_err());
        let followers: Vec<_> = members.followers_of(members.at("127.0.0.1:1").unwrap()).collect();
        assert_eq!(followers, [&members.all()[1]]);
        assert!(members.complete(2).is_ok() && members.complete(3).is_err());
    }
}
