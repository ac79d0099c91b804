//! One run: a server, some clients, and what goes wrong.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use lock_testkit_checker::history::event::{Run, What};
use lock_testkit_checker::history::{History, Recorder, Rules};
use lock_testkit_checker::{Check, check};
use simulation::memcached::server;
use simulation::memcached::store::Store;
use turmoil::{Builder, Sim};

use crate::faults::{self, CLIENTS, Faults, SERVER, host, nanos};
use crate::worker;

/// The step that a host goes before the next one's turn.
const TICK: Duration = Duration::from_millis(5);
/// So long after the last fault everybody must have come to an end: every round's longest wait, one after the other.
const ENOUGH: Duration = Duration::from_secs(120);
/// The time for which the server keeps what a client had no chance to release: a lease, and what is added to it in whole seconds.
const KEPT: Duration = Duration::from_secs(9);
/// The least number of grants of a run without faults.
const LEAST: usize = 20;

/// The checks that accuse in a run with faults: whether somebody waited or was refused for good reason is not among them, as this history
/// does not tell the checker when nothing was granted because the server had forgotten everything.
const SAFETY: &[Check] = &[Check::ME, Check::RW, Check::SEM, Check::F1, Check::R1, Check::R2, Check::L1];

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) violation: Option<String>,
    pub(crate) grants: usize,
    pub(crate) events: Vec<String>,
}

/// Runs a seed, and writes its history into this file.
pub(crate) fn run(seed: u64, history: &Path) -> Result<Outcome, String> {
    let faults = Faults::of(seed);
    let store = Rc::new(RefCell::new(Store::started(0)));
    let mut sim = Builder::new()
        .rng_seed(seed)
        .epoch(std::time::UNIX_EPOCH)
        .simulation_duration(faults::LAST + ENOUGH)
        .min_message_latency(Duration::ZERO)
        .max_message_latency(Duration::from_millis(1 + seed % 40))
        .tick_duration(TICK)
        .build();
    let data = store.clone();
    sim.host(SERVER, move || serve(data.clone(), now));
    let working = Rc::new(Cell::new(0));
    let pen = |name: &str| Recorder::append(history, name).map_err(|error| error.to_string());
    let world = pen("world")?;
    let mut rules = Rules::default();
    // Slots are taken one by one.
    rules.tries_meet = true;
    world.record_at(0, What::Run(Box::new(Run { backend: "memcached".into(), seed: Some(seed), rules })));
    for client in 0..CLIENTS {
        start(&mut sim, client, &working, worker::work(client, seed, pen(&host(client))?));
    }
    let late = course(&mut sim, &faults, &working, &store, &world);
    world.record_at(nanos(sim.elapsed()), What::End);
    let history = History::read([history]).map_err(|error| error.to_string())?;
    let judgement = check(&history, None);
    let events = history.events().iter().map(|event| format!("{event:?}")).collect();
    let wrong = judgement.violations.iter().find(|violation| SAFETY.contains(&violation.check) || faults.is_empty());
    let wrong = wrong.map(|violation| format!("{violation:?}"));
    let grants = judgement.summary.grants;
    let idle = (faults.is_empty() && grants < LEAST).then(|| format!("only {grants} grants without a fault"));
    let left = || residue(&mut store.borrow_mut(), sim.elapsed() + KEPT);
    Ok(Outcome { violation: wrong.or(late).or(idle).or_else(left), grants, events })
}

/// Lets a client work on a host of its own.
fn start(
    sim: &mut Sim<'_>,
    client: usize,
    working: &Rc<Cell<usize>>,
    work: impl Future<Output = turmoil::Result> + 'static,
) {
    working.set(working.get() + 1);
    let working = working.clone();
    sim.client(host(client), async move {
        work.await?;
        working.set(working.get() - 1);
        Ok(())
    });
}

/// Until everybody has come to an end; what kept them from it otherwise.
fn course(
    sim: &mut Sim<'_>,
    faults: &Faults,
    working: &Cell<usize>,
    store: &RefCell<Store>,
    recorder: &Recorder,
) -> Option<String> {
    let mut changes = faults.changes();
    while working.get() > 0 {
        changes.apply(sim, recorder, || store.borrow_mut().flush());
        if let Err(error) = sim.step() {
            return Some(format!("{} clients have not come to an end: {error}", working.get()));
        }
    }
    None
}

/// Returns what is at the server at that time, beside what outlives every lock.
fn residue(store: &mut Store, at: Duration) -> Option<String> {
    store.set_now(micros(at));
    let keys = store.items().into_iter().map(|(key, _)| String::from_utf8_lossy(&key).into_owned());
    let keys: Vec<_> =
        keys.filter(|key| key != "lock:epoch" && key != "lock:readers" && !key.ends_with(":limit")).collect();
    (!keys.is_empty()).then(|| format!("when all had ended, there was still {}, also at {at:?}", keys.join(", ")))
}

/// A server that has forgotten everything, on this clock: µs since 1970.
pub(crate) async fn serve(store: Rc<RefCell<Store>>, now: impl Fn() -> u64 + Copy + 'static) -> turmoil::Result {
    *store.borrow_mut() = Store::started(now());
    let listener = turmoil::net::TcpListener::bind(("0.0.0.0", 11211)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let store = store.clone();
        tokio::task::spawn_local(async move {
            // However it ended: the client sees it too.
            let _ = server::serve(&store, stream, now).await;
        });
    }
}

/// µs since 1970, when the simulation begins.
pub(crate) fn now() -> u64 {
    micros(turmoil::sim_elapsed().unwrap_or_default())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
