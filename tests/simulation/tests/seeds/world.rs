//! One run: a server, some clients, and what goes wrong.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use simulation::redis::server::Server;
use simulation::redis::store::{Data, Store};
use turmoil::{Builder, Sim};

use crate::beliefs::Beliefs;
use crate::client::Worker;
use crate::clock::{clock, now};
use crate::dropper::Dropper;
use crate::faults::{self, Faults};
use crate::hosts::{SERVER, WORKERS, host};
use crate::record::Record;

/// The step that a host goes before the next one's turn.
const TICK: Duration = Duration::from_millis(5);
/// So long after the last fault everybody must have come to an end: every round's longest wait, one after the other.
const ENOUGH: Duration = Duration::from_secs(60);
/// The time for which the server keeps what a client had no chance to release: the queue's heartbeats longest.
const KEPT: Duration = Duration::from_secs(31);
/// A value that somebody else puts into the lock's place, and for how long.
const FOREIGN: &[u8] = b"somebody else";
const USURPED: Duration = Duration::from_millis(800);

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) violation: Option<String>,
    pub(crate) grants: usize,
    pub(crate) events: Vec<String>,
}

/// Runs a seed.
pub(crate) fn run(seed: u64) -> Outcome {
    // Half of the servers release a mutex by their own compare-and-delete, beside company and without it.
    let store = Store::new(seed / 2 % 2 == 1);
    let (faults, store) = (Rc::new(Faults::of(seed, 1)), Rc::new(RefCell::new(store)));
    let record = Record::of(faults.clone());
    let mut sim = simulation(seed);
    let data = store.clone();
    sim.host(SERVER, move || serve(data.clone()));
    let working = Rc::new(Cell::new(0));
    let beliefs = Beliefs::of("m", &record);
    for number in 0..WORKERS {
        start(&mut sim, number, &working, Worker::new(number, seed, &record, &beliefs).work());
    }
    let dropper = Dropper::new(WORKERS, seed, &record, &Beliefs::of("dropped", &record));
    start(&mut sim, WORKERS, &working, dropper.work());
    let usurp = |now| {
        let end = clock(now + USURPED) / 1000;
        store.borrow_mut().set(b"lock:mutex:{m}", Data::Text(FOREIGN.to_vec()), Some(end), false);
        beliefs.taken(now);
    };
    let late = course(&mut sim, &faults, &record, &working, usurp);
    let end = sim.elapsed() + if record.released_all() { Duration::ZERO } else { KEPT };
    let left = || residue(&mut store.borrow_mut(), end);
    let violation = record.violation().or(late).or_else(left);
    Outcome { violation, grants: record.grants(), events: record.events() }
}

/// The hosts' network of a seed, without hosts.
pub(crate) fn simulation(seed: u64) -> Sim<'static> {
    Builder::new()
        .rng_seed(seed)
        .epoch(std::time::UNIX_EPOCH)
        .simulation_duration(faults::LAST + ENOUGH)
        .min_message_latency(Duration::ZERO)
        .max_message_latency(Duration::from_millis(1 + seed % 40))
        .tick_duration(TICK)
        .build()
}

/// Lets a client work on a host of its own.
pub(crate) fn start(
    sim: &mut Sim<'_>,
    number: usize,
    working: &Rc<Cell<usize>>,
    work: impl Future<Output = ()> + 'static,
) {
    working.set(working.get() + 1);
    let working = working.clone();
    sim.client(host(number), async move {
        work.await;
        working.set(working.get() - 1);
        Ok(())
    });
}

/// Until everybody has come to an end; what kept them from it otherwise.
pub(crate) fn course(
    sim: &mut Sim<'_>,
    faults: &Faults,
    record: &Record,
    working: &Cell<usize>,
    usurp: impl Fn(Duration),
) -> Option<String> {
    let mut changes = faults.changes();
    while working.get() > 0 {
        let now = sim.elapsed();
        changes.apply(sim, |event| record.tell(event), || usurp(now));
        if let Err(error) = sim.step() {
            return Some(format!("{} clients have not come to an end: {error}", working.get()));
        }
        if record.violation().is_some() {
            return None;
        }
    }
    None
}

/// Returns what is at the server at that time, beside the memory of the last token.
pub(crate) fn residue(store: &mut Store, at: Duration) -> Option<String> {
    store.now = clock(at);
    let foreign = Data::Text(FOREIGN.to_vec());
    let mut keys: Vec<_> = store.keys().into_iter().filter(|key| !key.ends_with(b":tokens")).collect();
    keys.retain(|key| store.get(key) != Some(&foreign));
    let keys: Vec<_> = keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
    (!keys.is_empty()).then(|| format!("when all had ended, there was still {}, also at {at:?}", keys.join(", ")))
}

/// Serves these data.
pub(crate) async fn serve(store: Rc<RefCell<Store>>) -> turmoil::Result {
    let server = Server::new(store)?;
    let listener = turmoil::net::TcpListener::bind(("0.0.0.0", 6379)).await?;
    loop {
        let (stream, address) = listener.accept().await?;
        let server = server.clone();
        tokio::task::spawn_local(async move {
            // However it ended: the client sees it too.
            let _ = server.serve(stream, address, || clock(now())).await;
        });
    }
}
