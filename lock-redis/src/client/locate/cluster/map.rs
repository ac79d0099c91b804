//! The map of a cluster: who serves which slot, as the nodes say.
//!
//! Nodes may disagree for a while, and one that is cut off from the others stays with what it knew. So several are
//! asked, and for each slot the claim of the highest configuration epoch counts, which is how the nodes themselves decide.
//! `CLUSTER NODES` has the epochs, `CLUSTER SLOTS` the addresses that are meant for clients. Nodes may tell one node's address in several
//! ways, by name and by IP: it is known by its id, and has one address in a map.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use lock_core::Error;
use lock_core::clock::{Clock, SystemClock};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::sync::watch;

use crate::address::Address;
use crate::client::dial::Locate;
use crate::store::slot::SLOTS;

/// The number of nodes that are tried, where any of them would do.
const MOST_CHOICES: usize = 3;
/// The number of nodes of the map that stand before the nodes that were named at first.
const BEFORE_SEEDS: usize = 4;
/// In place of an owner.
const NOBODY: u16 = u16::MAX;

/// The nodes of a cluster, and the slots that each serves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Map {
    /// The servers that serve slots.
    masters: Vec<Address>,
    others: Vec<Address>,
    /// For each slot, which of the masters.
    owners: Vec<u16>,
    /// The masters by their ids.
    ids: HashMap<String, Address>,
    /// Other addresses of masters, and those by which the map has them.
    aliases: HashMap<Address, Address>,
}

/// The answer of one node about all of them.
#[derive(Debug)]
pub(super) struct View {
    asked: Address,
    /// The id of the node that was asked.
    id: Option<String>,
    claims: Vec<SlotClaim>,
    /// The nodes that claim no slots, by their ids.
    others: Vec<(String, Address)>,
}

/// A master's slots, and the configuration epoch by which it has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotClaim {
    pub(super) epoch: u64,
    /// The master's id, which it keeps wherever it is.
    pub(super) id: String,
    pub(super) master: Address,
    slots: Vec<(u16, u16)>,
}

impl Map {
    /// For each slot, the claim of the highest epoch, and among equals the last one.
    pub(super) fn of<'a>(claims: impl IntoIterator<Item = &'a SlotClaim>) -> Self {
        let mut claims: Vec<_> = claims.into_iter().collect();
        claims.sort_by_key(|claim| claim.epoch);
        let mut owners = vec![NOBODY; usize::from(SLOTS)];
        // A handful of nodes was asked, and each master claims once: there are far fewer claims than numbers.
        for (claim, number) in claims.iter().zip(0..NOBODY) {
            for (first, last) in &claim.slots {
                owners[usize::from(*first)..=usize::from(*last)].fill(number);
            }
        }
        let mut prevail = vec![false; claims.len()];
        owners.iter().filter(|owner| **owner != NOBODY).for_each(|owner| prevail[usize::from(*owner)] = true);
        let prevailing = || claims.iter().zip(&prevail).filter(|(_, prevails)| **prevails).map(|(claim, _)| claim);
        let mut masters: Vec<_> = prevailing().map(|claim| claim.master.clone()).collect();
        sort(&mut masters);
        let ids = prevailing().map(|claim| (claim.id.clone(), claim.master.clone())).collect();
        let number = |claim: &&SlotClaim| masters.iter().position(|master| *master == claim.master);
        let numbers: Vec<_> = claims.iter().map(|claim| number(claim).and_then(|at| u16::try_from(at).ok())).collect();
        for owner in owners.iter_mut().filter(|owner| **owner != NOBODY) {
            *owner = numbers[usize::from(*owner)].unwrap_or(NOBODY);
        }
        Self { masters, others: Vec::new(), owners, ids, aliases: HashMap::new() }
    }

    /// Adds these other addresses of masters, each with the one by which the map has it.
    pub(super) fn with_aliases(mut self, aliases: HashMap<Address, Address>) -> Self {
        self.aliases = aliases;
        self
    }

    /// Adds these other nodes.
    pub(super) fn with_replicas<'a>(mut self, replicas: impl IntoIterator<Item = &'a Address>) -> Self {
        let others = replicas.into_iter().filter(|replica| !self.masters.contains(replica));
        self.others = others.cloned().collect();
        sort(&mut self.others);
        self
    }

    /// Whether every slot is served by the same master in both; other nodes may differ.
    pub(super) fn serves_as(&self, other: &Self) -> bool {
        (&self.masters, &self.owners) == (&other.masters, &other.owners)
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Address> {
        self.masters.get(usize::from(self.owners[usize::from(slot)]))
    }

    pub(super) fn is_master(&self, address: &Address) -> bool {
        self.masters.contains(address)
    }

    /// The address by which the map has the node of this one.
    pub(super) fn named(&self, address: Address) -> Address {
        let named = self.aliases.get(&address).filter(|_| !self.is_master(&address)).cloned();
        named.unwrap_or(address)
    }

    /// The address by which the map has the master of this id.
    pub(super) fn master_of(&self, id: &str) -> Option<&Address> {
        self.ids.get(id)
    }

    /// The masters that had other addresses in an earlier map: from there, and to here.
    pub(super) fn renamed<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = (&'a Address, &'a Address)> {
        let both = earlier.ids.iter().filter_map(|(id, from)| Some((from, self.ids.get(id)?)));
        both.filter(|(from, to)| from != to)
    }

    pub(super) fn masters(&self) -> impl Iterator<Item = &Address> {
        self.masters.iter()
    }

    /// Every node that is known, masters first.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Address> {
        self.masters.iter().chain(&self.others)
    }

    pub(super) fn serves_nothing(&self) -> bool {
        self.masters.is_empty()
    }
}

fn sort(addresses: &mut Vec<Address>) {
    addresses.sort_by_cached_key(Address::to_string);
    addresses.dedup();
}

impl View {
    /// Asks one node.
    pub(super) async fn ask(connection: &mut MultiplexedConnection, asked: &Address) -> RedisResult<Self> {
        let mut both = redis::pipe();
        both.cmd("CLUSTER").arg("NODES").cmd("CLUSTER").arg("SLOTS");
        let (nodes, slots): (String, Value) = both.query_async(connection).await?;
        Ok(Self::read(&nodes, &slots, asked))
    }

    /// Whether this is what the master of this claim says itself.
    pub(super) fn is_of_master(&self, claim: &SlotClaim) -> bool {
        self.asked == claim.master || self.id.as_ref() == Some(&claim.id)
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = &SlotClaim> {
        self.claims.iter()
    }

    pub(super) fn replicas(&self) -> impl Iterator<Item = &Address> {
        self.others.iter().map(|(_, address)| address)
    }

    /// The nodes that claim no slots, with their ids.
    pub(super) fn others(&self) -> impl Iterator<Item = (&str, &Address)> {
        self.others.iter().map(|(id, address)| (&**id, address))
    }

    /// Reads the answers to `CLUSTER NODES` and `CLUSTER SLOTS`.
    pub(super) fn read(nodes: &str, slots: &Value, asked: &Address) -> Self {
        let endpoints = endpoints(slots, asked);
        let mut view = Self { asked: asked.clone(), id: None, claims: Vec::new(), others: Vec::new() };
        for line in nodes.lines() {
            let Some(node) = Node::parse(line) else { continue };
            if node.is_asked {
                view.id = Some(node.id.to_owned());
            }
            let address = endpoints.get(node.id).cloned().or_else(|| Address::told(node.address, asked));
            let Some(address) = address else { continue };
            if node.is_master && !node.slots.is_empty() {
                let (epoch, id) = (node.epoch, node.id.to_owned());
                view.claims.push(SlotClaim { epoch, id, master: address, slots: node.slots });
            } else if !node.has_failed {
                view.others.push((node.id.to_owned(), address));
            }
        }
        view
    }
}

/// A line of `CLUSTER NODES`:
/// `id host:port@bus[,hostname…] flags master-id ping-sent pong-received epoch link [slot|first-last|[moving…]]…`.
struct Node<'a> {
    id: &'a str,
    address: &'a str,
    epoch: u64,
    is_asked: bool,
    is_master: bool,
    has_failed: bool,
    slots: Vec<(u16, u16)>,
}

impl<'a> Node<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split(' ');
        let (id, address, flags) = (fields.next()?, fields.next()?, fields.next()?);
        let epoch = fields.nth(3)?.parse().ok()?;
        let _link = fields.next()?;
        let has = |flag| flags.split(',').any(|other| other == flag);
        if has("noaddr") || has("handshake") {
            return None;
        }
        let address = address.split(['@', ',']).next()?;
        let slots = fields.filter(|field| !field.starts_with('[')).filter_map(range).collect();
        let [is_asked, is_master, has_failed] = ["myself", "master", "fail"].map(has);
        Some(Self { id, address, epoch, is_asked, is_master, has_failed, slots })
    }
}

fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < SLOTS).then_some((first, last))
}

/// `CLUSTER SLOTS`: `[[first, last, [host, port, id, …], …], …]`; where clients are to find the node of an id.
fn endpoints(slots: &Value, asked: &Address) -> HashMap<String, Address> {
    let parts = |value: &Value| match value {
        Value::Array(parts) => parts.clone(),
        _ => Vec::new(),
    };
    let mut endpoints = HashMap::new();
    for node in parts(slots).iter().flat_map(|range| parts(range).into_iter().skip(2)) {
        let node = parts(&node);
        let [host, Value::Int(port), Value::BulkString(id), ..] = &*node else { continue };
        let host = match host {
            Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
            _ => String::new(),
        };
        let address = u16::try_from(*port).ok().and_then(|port| Address::of(&host, port, asked));
        if let Some(address) = address {
            endpoints.insert(String::from_utf8_lossy(id).into_owned(), address);
        }
    }
    endpoints
}

/// The present map, and the nodes that were named at first.
#[derive(Debug)]
pub(crate) struct Nodes {
    map: watch::Sender<Arc<Map>>,
    seeds: Vec<Address>,
    /// The node of the map with which the next list begins.
    turn: AtomicUsize,
    /// The node of the map that is named next. Apart from the other one, so that the lists skip none of those that are named.
    named: AtomicUsize,
}

impl Nodes {
    pub(super) fn new(map: Map, seeds: Vec<Address>) -> Self {
        // Not all clients begin with the same node.
        let turn = usize::try_from(SystemClock.now().since_origin().subsec_nanos()).unwrap_or_default();
        let [turn, named] = [turn; 2].map(AtomicUsize::new);
        Self { map: watch::Sender::new(Arc::new(map)), seeds, turn, named }
    }

    pub(super) fn map(&self) -> Arc<Map> {
        self.map.borrow().clone()
    }

    pub(super) fn maps(&self) -> watch::Receiver<Arc<Map>> {
        self.map.subscribe()
    }

    pub(super) fn replace(&self, map: Map) {
        self.map.send_replace(Arc::new(map));
    }

    /// A node, another one each time.
    fn next(&self) -> Address {
        self.listed(&self.named).swap_remove(0)
    }

    /// Every node that is known, beginning with another one each time. Never empty: there is a seed at least.
    ///
    /// A cluster may have moved as a whole, with none of the map's nodes where it was: then only the seeds lead to it. So those that
    /// are not in the map stand behind the first few of it, each of them in front at some time.
    pub(super) fn all(&self) -> Vec<Address> {
        self.listed(&self.turn)
    }

    fn listed(&self, turn: &AtomicUsize) -> Vec<Address> {
        let (map, turn) = (self.map(), turn.fetch_add(1, Ordering::Relaxed));
        let mut all: Vec<_> = map.nodes().cloned().collect();
        let mut unknown: Vec<_> = self.seeds.iter().filter(|seed| !all.contains(seed)).cloned().collect();
        for part in [&mut all, &mut unknown] {
            let length = part.len().max(1);
            part.rotate_left(turn % length);
        }
        let behind = all.split_off(all.len().min(BEFORE_SEEDS));
        all.extend(unknown);
        all.extend(behind);
        all
    }
}

/// Any node, another one each time.
#[async_trait]
impl Locate for Nodes {
    async fn find(&self) -> Result<Address, Error> {
        Ok(self.next())
    }

    fn choices(&self) -> usize {
        self.map.borrow().nodes().count().clamp(1, MOST_CHOICES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::parse(text, 6379).unwrap()
    }

    fn map(views: &[View]) -> Map {
        Map::of(views.iter().flat_map(View::claims)).with_replicas(views.iter().flat_map(View::replicas))
    }

    const NODES: &str = "\
        aa 10.0.0.1:1@11,host-a myself,master - 0 0 7 connected 0-5460 [5461->-bb]\n\
        bb 10.0.0.2:2@12,host-b,shard-id=x master - 0 0 3 connected 5461-10922 16383\n\
        cc :3@13 slave aa 0 0 7 connected\n\
        dd 10.0.0.4:4@14 slave,fail bb 0 0 3 disconnected\n\
        ee :0@0 master,noaddr - 0 0 9 disconnected 10923\n";

    fn slots() -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = Value::Array(vec![text("host-a"), Value::Int(1), text("aa"), Value::Array(Vec::new())]);
        Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(5460), node])])
    }

    #[test]
    fn a_view_has_the_claims_with_addresses_for_clients() {
        let map = map(&[View::read(NODES, &slots(), &address("10.0.0.9:9"))]);
        let owner = |slot| map.owner(slot).map(Address::to_string);
        assert_eq!(owner(0).as_deref(), Some("host-a:1"));
        assert_eq!(owner(16383).as_deref(), Some("10.0.0.2:2"));
        assert_eq!((owner(5461).as_deref(), owner(10923)), (Some("10.0.0.2:2"), None));
        assert_eq!(map.others, [address("10.0.0.9:3")], "its own host is the one that was asked");
    }

    #[test]
    fn the_claim_of_the_highest_epoch_counts_whoever_is_asked_first() {
        let stale = "aa 10.0.0.1:1@11 myself,master - 0 0 1 connected 0-16383\n";
        let fresh = "bb 10.0.0.2:2@12 myself,master - 0 0 2 connected 0-16383\n\
                     aa 10.0.0.1:1@11 slave,fail bb 0 0 2 connected\n";
        let views = || [stale, fresh].map(|nodes| View::read(nodes, &Value::Nil, &address("a:1")));
        for reversed in [false, true] {
            let mut views = views();
            if reversed {
                views.reverse();
            }
            let map = map(&views);
            assert_eq!(map.owner(0), Some(&address("10.0.0.2:2")));
            assert!(!map.is_master(&address("10.0.0.1:1")));
        }
    }

    #[test]
    fn the_address_of_a_node_whose_host_is_unknown_is_that_which_the_nodes_use() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = Value::Array(vec![text("?"), Value::Int(2), text("bb")]);
        let slots = Value::Array(vec![Value::Array(vec![Value::Int(5461), Value::Int(10922), node])]);
        let map = map(&[View::read(NODES, &slots, &address("10.0.0.9:2"))]);
        assert_eq!(map.owner(16383), Some(&address("10.0.0.2:2")));
    }

    /// The nodes of a map with so many masters, and these seeds.
    fn nodes(masters: u16, seeds: &[&str]) -> Nodes {
        let claim = |number: u16| {
            let text = format!("{number} 10.0.0.1:{number}@1 master - 0 0 1 connected {number}\n");
            View::read(&text, &Value::Nil, &address("a:1"))
        };
        let views: Vec<_> = (1..=masters).map(claim).collect();
        Nodes::new(map(&views), seeds.iter().map(|seed| address(seed)).collect())
    }

    #[test]
    fn nodes_are_named_in_turn() {
        for many in 1..=9 {
            let nodes = nodes(many, &["10.0.0.1:1"]);
            let named: std::collections::HashSet<_> = (0..many).map(|_| nodes.next()).collect();
            assert_eq!(named.len(), usize::from(many));
            // Whoever lists all of them meanwhile takes nobody's turn.
            let first = nodes.next();
            nodes.all();
            assert!(many == 1 || nodes.next() != first, "{many}");
        }
    }

    #[test]
    fn seeds_that_are_not_in_the_map_stand_behind_the_first_few_nodes() {
        for many in [0, 1, 3, 4, 6, 100] {
            let nodes = nodes(many, &["seed:1", "seed:2", "seed:3", "10.0.0.1:1"]);
            let known = usize::from(many);
            let mut next = std::collections::HashSet::new();
            for _ in 0..3 {
                let all = nodes.all();
                assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), all.len());
                assert_eq!(all.len(), known + 3 + usize::from(many == 0));
                next.insert(all[known.min(4)].clone());
            }
            assert!(next.len() == 3 && next.iter().all(|node| many == 0 || node.to_string().starts_with("seed")));
        }
    }

    /// Every slot belongs to the claim of the highest epoch that has it, and to nobody without one.
    fn judge(view: &View) {
        let map = map(std::slice::from_ref(view));
        let has = |claim: &&SlotClaim, slot| claim.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot));
        for slot in view.claims.iter().flat_map(|claim| &claim.slots).flat_map(|(first, last)| [*first, *last]).take(16)
        {
            let best = view.claims().filter(|claim| has(claim, slot)).max_by_key(|claim| claim.epoch).unwrap();
            assert_eq!(map.owner(slot), Some(&best.master));
            assert!(map.is_master(&best.master));
        }
        for slot in [0, SLOTS / 2, SLOTS - 1] {
            assert_eq!(map.owner(slot).is_some(), view.claims().any(|claim| has(&claim, slot)));
        }
    }

    #[test]
    fn nodes_from_outside_serve_what_they_claim() {
        let samples = [NODES, "aa 10.0.0.1:1@11 myself,master - 0 0 1 connected 0-16383\n"];
        lock_testkit::fuzz::texts("CLUSTER NODES", &samples, |nodes| {
            judge(&View::read(nodes, &slots(), &address("10.0.0.9:9")));
        });
    }

    #[test]
    fn slots_from_outside_name_addresses_or_nothing() {
        let samples = [
            &b"*1\r\n*3\r\n:0\r\n:5460\r\n*4\r\n$6\r\nhost-a\r\n:1\r\n$2\r\naa\r\n*0\r\n"[..],
            b"*1\r\n*4\r\n:0\r\n:5460\r\n*3\r\n$-1\r\n:1\r\n$2\r\nbb\r\n*3\r\n$3\r\n::1\r\n:65536\r\n$2\r\ncc\r\n",
        ];
        lock_testkit::fuzz::bytes("CLUSTER SLOTS", &samples, |bytes| {
            let Ok(slots) = redis::parse_redis_value(bytes) else { return };
            let view = View::read(NODES, &slots, &address("10.0.0.9:9"));
            assert_eq!(view.claims.len(), 2);
            judge(&view);
        });
    }
}
