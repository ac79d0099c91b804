//! A cluster: one [`Link`] for each master, and who serves which slot.
//!
//! A request goes to the master of its slot. What that one refuses because it is not in charge (any more, yet, or at
//! present) was not carried out, and is sent to another one, or again after a pause, as long as its operation has time.
//! Those of many that go together follow only where they are sent elsewhere: any other refusal goes back to the caller,
//! who asks again at a pace of its own. So none but those that are sent elsewhere hold up the answers to the others.
//! A request that was lost with its connection goes back to the caller, who knows by the attempt's number whether it may
//! be sent again.
//!
//! No lock is held while anything is awaited: requests in flight, the search for a new map and the dialling of nodes never
//! wait for each other.

mod former;
pub(crate) mod map;
mod memory;
mod refresh;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{log, supervised, wait};
use lock_core::{Error, Phase};
use redis::{RedisError, ServerErrorKind};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::address::Address;
use crate::client::dial::{Commands, Dial, Opener};
use crate::client::link::predecessors::Predecessors;
use crate::client::link::request::{Failed, Raw, Reply};
use crate::client::link::{Link, Live, NO_TIME, SendTurn};
use crate::error::{cause, is_of_connection, nowhere};
use crate::store::call::{Call, Request};
use crate::store::scripts::Script;
use crate::store::slot::slot;
use former::FormerAddresses;
use map::{Map, Nodes};

/// The pause before a node that is not ready is asked again: the first one, and the longest. Jitter adds as much at most.
const PAUSE: Duration = Duration::from_millis(30);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The time after which somebody who waits for a node asks for a new map again.
const LOOK: Duration = Duration::from_millis(100);

/// The time for which an unused link to a node that is no master is kept.
const UNUSED: Duration = Duration::from_secs(30);

/// The number of redirections that a request follows at once.
const HOPS: u32 = 4;

/// The command connections to a cluster.
#[derive(Debug)]
pub(crate) struct Router {
    opener: Arc<Opener>,
    nodes: Arc<Nodes>,
    predecessors: Arc<Predecessors>,
    /// To every master, and to other nodes that were of use of late.
    links: Mutex<HashMap<Address, Used>>,
    /// Nodes that were asked for keys of a slot before they were its masters, and when last. Forgotten when nothing can be
    /// left of that.
    asked: Mutex<HashMap<(u16, Address), BootInstant>>,
    former: Mutex<FormerAddresses>,
    wanted: Notify,
    closed: AtomicBool,
    server: String,
    /// The runtime on which the client was connected: what keeps its links goes on there, whoever has needed one first.
    home: Handle,
}

/// A link, and when somebody wanted it last.
#[derive(Debug)]
struct Used {
    link: Arc<Link>,
    at: BootInstant,
}

/// The node to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Route {
    /// The master of the slot.
    Owner,
    /// The one that another node named.
    To(Address),
    /// A node to which the slot is on its way: asked with `ASKING`.
    Asking(Address),
}

impl Router {
    /// Finds the nodes, and keeps knowing them until [`close`](Router::close).
    ///
    /// # Errors
    /// If none of the seeds tells about its cluster.
    pub(crate) async fn connect(opener: Arc<Opener>, seeds: Vec<Address>) -> Result<Arc<Self>, Error> {
        let server = seeds.iter().map(Address::to_string).collect::<Vec<_>>().join(",");
        let (map, memory) = refresh::first(&opener, &seeds, &server).await?;
        let router = Arc::new(Self {
            opener,
            nodes: Arc::new(Nodes::new(map, seeds)),
            predecessors: Arc::default(),
            links: Mutex::default(),
            asked: Mutex::default(),
            former: Mutex::default(),
            wanted: Notify::new(),
            closed: AtomicBool::new(false),
            server,
            home: Handle::current(),
        });
        let (kept, memory) = (router.clone(), Arc::new(tokio::sync::Mutex::new(memory)));
        tokio::spawn(supervised("cluster", move || refresh::for_ever(kept.clone(), memory.clone())));
        Ok(router)
    }

    /// Connects to every master, so that what a client costs does not depend on which locks it uses. Those that cannot be
    /// reached are waited for when they are needed.
    pub(crate) async fn warm_up(&self) {
        let until = SystemClock.now().plus(self.opener.connect_timeout());
        let map = self.nodes.map();
        join_all(map.masters().map(async |master| self.link(master).ready(until).await.ok())).await;
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn nodes(&self) -> &Arc<Nodes> {
        &self.nodes
    }

    pub(crate) fn predecessors(&self) -> &Predecessors {
        &self.predecessors
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends every connection.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        locked(&self.links).drain().for_each(|(_, used)| used.link.close());
        self.wanted.notify_one();
    }

    /// Gives up the connection of this number.
    pub(crate) fn give_up(&self, generation: u64) {
        locked(&self.links).values().for_each(|used| used.link.give_up_present(generation));
    }

    /// Whether nothing sent over connection `first` or a later one can still take effect, except over the present connection to this key's
    /// master. What a node does that is not the master has no effect, unless it was asked for the slot before it became its master.
    pub(crate) fn is_settled(&self, first: u64, key: &str) -> bool {
        let slot = slot(key.as_bytes());
        let map = self.nodes.map();
        let Some(owner) = map.owner(slot) else { return false };
        let mut asked = locked(&self.asked);
        self.forget_asked(&mut asked);
        let (former, links) = (locked(&self.former), locked(&self.links));
        let counts =
            |address: &&Address| former.may_be(address, owner) || asked.contains_key(&(slot, (*address).clone()));
        links.contains_key(owner)
            && links.iter().filter(|(address, _)| counts(address)).all(|(_, used)| used.link.is_settled(first))
    }

    /// Waits for a connection to the master of this key.
    ///
    /// # Errors
    /// If there is none until `until`.
    pub(crate) async fn ready(&self, key: &str, until: BootInstant) -> Result<(), Error> {
        self.reach(slot(key.as_bytes()), &Route::Owner, until).await.map(|_| ())
    }

    /// The address of the master of this key, if there is one.
    pub(crate) fn master(&self, key: &str) -> Option<Address> {
        self.nodes.map().owner(slot(key.as_bytes())).cloned()
    }

    /// Runs a script at the master of its keys when its turn has come.
    pub(crate) async fn run(
        &self,
        request: Request<'_>,
        phase: Phase,
        until: BootInstant,
        sent: impl Fn(u64),
    ) -> Result<Reply, Failed> {
        self.run_in_turn(request, false, phase, until, sent).await
    }

    /// [`run`](Router::run); with `of_many` it passes those that wait for their turn, and only goes where it is sent.
    async fn run_in_turn(
        &self,
        request: Request<'_>,
        of_many: bool,
        phase: Phase,
        until: BootInstant,
        sent: impl Fn(u64),
    ) -> Result<Reply, Failed> {
        let slot = slot(request.keys[0].as_bytes());
        let (mut way, mut hops, mut pauses) = (Route::Owner, 0, None);
        loop {
            let (link, live) = self.reach(slot, &way, until).await.map_err(Failed::unsent)?;
            let turn = match if of_many { None } else { Some(live.turn(until).await) } {
                None => None,
                Some(SendTurn::Now(turn)) => Some(turn),
                Some(SendTurn::Ended) => continue,
                Some(SendTurn::Never(why)) => return Err(Failed::no_turn(why, phase, link.server())),
            };
            sent(live.generation);
            let node = live.server.clone();
            let asking = matches!(way, Route::Asking(_));
            let outcome = link.run_on(live, request, asking, until).await;
            // It is answered. While it pauses, others have their turn.
            drop(turn);
            let error = match outcome {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let next = self.after(slot, &node, &error).filter(|_| !of_many || is_redirection(&error));
            let now = SystemClock.now();
            let time_to_pause = until.since(now).saturating_sub(PAUSE);
            let Some(next) = next.filter(|_| !time_to_pause.is_zero()) else {
                return Err(not_served(error, phase, link.server()));
            };
            hops = if next == Route::Owner { HOPS } else { hops + 1 };
            if hops >= HOPS {
                let pauses = pauses.get_or_insert_with(|| wait::pauses(PAUSE, LONGEST_PAUSE));
                let pause = pauses.next().unwrap_or(LONGEST_PAUSE).min(time_to_pause);
                SystemClock.sleep_until(now.plus(pause)).await;
                hops = 0;
            }
            way = next;
        }
    }

    /// Runs one script for many keys, a pipeline for each node.
    pub(crate) async fn run_each(
        &self,
        script: &Script,
        calls: &[Call],
        phase: Phase,
        until: BootInstant,
    ) -> Vec<Result<Raw, Failed>> {
        let map = self.nodes.map();
        let mut groups: HashMap<_, Vec<usize>> = HashMap::new();
        for (i, call) in calls.iter().enumerate() {
            groups.entry(map.owner(slot(call.key().as_bytes()))).or_default().push(i);
        }
        let outcomes = groups.into_values().map(async |group: Vec<usize>| {
            let calls: Vec<_> = group.iter().map(|i| calls[*i].clone()).collect();
            (group, self.run_group(script, &calls, phase, until).await)
        });
        let mut answers: Vec<_> = calls.iter().map(|_| None).collect();
        for (group, outcomes) in join_all(outcomes).await {
            for (i, outcome) in group.into_iter().zip(outcomes) {
                answers[i] = Some(outcome);
            }
        }
        let missing = || Failed::unsent(Error::unavailable(phase, "there was no answer for one of many"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(missing()))).collect()
    }

    /// The calls of one node; those that it sends elsewhere go their own way.
    async fn run_group(
        &self,
        script: &Script,
        calls: &[Call],
        phase: Phase,
        until: BootInstant,
    ) -> Vec<Result<Raw, Failed>> {
        let patience = until.since(SystemClock.now());
        let (link, live) = match self.reach(slot(calls[0].key().as_bytes()), &Route::Owner, until).await {
            Ok(reached) => reached,
            Err(error) => {
                let failed = Failed::unsent(error);
                return calls.iter().map(|_| Err(failed.repeated(phase))).collect();
            }
        };
        if SystemClock.now() >= until {
            return calls.iter().map(|_| Err(Failed::no_turn(NO_TIME, phase, link.server()))).collect();
        }
        let node = live.server.clone();
        let outcomes = link.run_each_on(live, script, calls, until, patience).await;
        let each = outcomes.into_iter().zip(calls).map(async |(outcome, call)| match outcome {
            Ok(raw) => Ok(raw),
            Err(error) => match self.after(slot(call.key().as_bytes()), &node, &error) {
                Some(_) if is_redirection(&error) => self.run_alone(script, call, phase, until).await,
                _ => Err(Failed::of(error, phase, link.server())),
            },
        });
        join_all(each).await
    }

    async fn run_alone(&self, script: &Script, call: &Call, phase: Phase, until: BootInstant) -> Result<Raw, Failed> {
        let keys: Vec<_> = call.keys().map(Into::into).collect();
        let args: Vec<_> = call.args().map(str::as_bytes).collect();
        let request = Request::new(script, &keys, &args);
        let reply = self.run_in_turn(request, true, phase, until, |_| {}).await?;
        Ok(reply.value)
    }

    /// The way on for a request that this node has refused for certain; `None` if it is not for the router to decide.
    fn after(&self, slot: u16, node: &Address, error: &RedisError) -> Option<Route> {
        use ServerErrorKind::{Ask, ClusterDown, MasterDown, Moved, ReadOnly, TryAgain};
        if is_of_connection(error) {
            self.wanted.notify_one();
            return None;
        }
        let redis::ErrorKind::Server(kind) = error.kind() else { return None };
        let named = || Some(self.nodes.map().named(Address::told(error.redirect_node()?.0, node)?));
        match kind {
            Ask => match named() {
                Some(target) => {
                    locked(&self.asked).insert((slot, target.clone()), SystemClock.now());
                    Some(Route::Asking(target))
                }
                // The node does not know that host yet. It is asked again, until it does or another one owns the slot.
                None => {
                    self.wanted.notify_one();
                    Some(Route::Owner)
                }
            },
            Moved => {
                self.wanted.notify_one();
                Some(named().map_or(Route::Owner, Route::To))
            }
            TryAgain | ClusterDown | MasterDown | ReadOnly => {
                self.wanted.notify_one();
                Some(Route::Owner)
            }
            _ => None,
        }
    }

    /// A connection to the node that is meant, or to whichever takes over meanwhile.
    async fn reach(&self, slot: u16, way: &Route, until: BootInstant) -> Result<(Arc<Link>, Live), Error> {
        let mut named = match way {
            Route::Owner => None,
            Route::To(address) | Route::Asking(address) => Some(address),
        };
        if let Some((link, Some(live))) = self.look(slot, named) {
            return Ok((link, live));
        }
        let (mut maps, mut made) = (self.nodes.maps(), self.predecessors.made());
        loop {
            // Subscribed before this look: whatever comes after it is a change.
            let link = match self.look(slot, named) {
                Some((link, Some(live))) => return Ok((link, live)),
                Some((link, None)) => Some(link),
                None => None,
            };
            let now = SystemClock.now();
            if now >= until || self.is_closed() {
                let nobody = || nowhere(format!("no node serves slot {slot}"), &self.server);
                return Err(link.map_or_else(nobody, |link| link.down()));
            }
            tokio::select! {
                biased;
                Ok(()) = maps.changed() => {}
                Ok(()) = made.changed() => {}
                () = SystemClock.sleep_until(until.min(now.plus(LOOK))) => {
                    self.wanted.notify_one();
                    if !matches!(way, Route::Asking(_)) {
                        named = None;
                    }
                }
            }
        }
    }

    /// The link to the node that is named, or else to the master of the slot, and its connection if it has one.
    fn look(&self, slot: u16, named: Option<&Address>) -> Option<(Arc<Link>, Option<Live>)> {
        let map = self.nodes.map();
        let link = self.link(named.or_else(|| map.owner(slot))?);
        let live = link.present();
        Some((link, live))
    }

    /// The link to a node, which is begun if there is none.
    fn link(&self, address: &Address) -> Arc<Link> {
        let (mut links, now) = (locked(&self.links), SystemClock.now());
        if let Some(used) = links.get_mut(address) {
            used.at = now;
            return used.link.clone();
        }
        let _at_home = self.home.enter();
        let link = Link::begin(Arc::new(Dial::to(self.opener.clone(), address.clone())), self.predecessors.clone());
        if self.is_closed() {
            link.close();
        }
        links.insert(address.clone(), Used { link: link.clone(), at: now });
        link
    }

    /// The connection to a node, if there is one.
    fn present(&self, address: &Address) -> Option<Commands> {
        locked(&self.links).get(address).and_then(|used| used.link.present()).map(|live| live.commands)
    }

    /// Takes over a map; whether its slots are served by other nodes than before.
    fn adopt(&self, map: Map) -> bool {
        let present = self.nodes.map();
        if map.serves_as(&present) {
            if map != *present {
                self.nodes.replace(map);
            }
            return false;
        }
        log(|| tracing::info!(server = self.server, "the cluster's slots are served by other nodes now"));
        locked(&self.asked).retain(|(slot, address), _| map.owner(*slot) != Some(address));
        locked(&self.former).add(map.renamed(&present), SystemClock.now());
        self.nodes.replace(map);
        self.nodes.map().masters().for_each(|master| drop(self.link(master)));
        self.predecessors.changed();
        true
    }

    /// Closes the links that nobody has used of late, to nodes that are no masters.
    fn forget_unused(&self) {
        let (map, now) = (self.nodes.map(), SystemClock.now());
        let mut asked = locked(&self.asked);
        self.forget_asked(&mut asked);
        let former = locked(&self.former);
        locked(&self.links).retain(|address, used| {
            let stays = map.is_master(address)
                || former.present(address) != address
                || now.since(used.at) < UNUSED
                || asked.keys().any(|(_, asked)| asked == address);
            if !stays {
                used.link.close();
            }
            stays
        });
    }

    /// Forgets the nodes that were asked, and had another address, so long ago that nothing can be left of it.
    fn forget_asked(&self, asked: &mut HashMap<(u16, Address), BootInstant>) {
        let mut former = locked(&self.former);
        if !asked.is_empty() || !former.is_empty() {
            let (now, matters) = (SystemClock.now(), self.predecessors.afterlife(self.opener.op_timeout));
            asked.retain(|_, at| now.since(*at) < matters);
            former.forget(now, matters);
        }
    }
}

/// Whether a node names another one for this request, rather than being of no use at present.
fn is_redirection(error: &RedisError) -> bool {
    error.redirect_node().is_some()
}

/// A request that no node has served in time. To be sent elsewhere, which tells that a single server belongs to a cluster, is
/// usual here while slots move, and passes.
fn not_served(error: RedisError, phase: Phase, server: &str) -> Failed {
    if !is_redirection(&error) {
        return Failed::of(error, phase, server);
    }
    let what = "the lock's slot is on the move, and no node has served the request in time";
    Failed::unsent(
        Error::unavailable(phase, what)
            .with_backend(crate::guarantees::NAME)
            .with_server(server)
            .with_source(cause(&error)),
    )
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves its data valid after each statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
