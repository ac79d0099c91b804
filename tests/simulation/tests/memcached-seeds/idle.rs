//! A client that asks nothing for a long time, of a server whose clock is slower than its own.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use simulation::memcached::store::Store;
use turmoil::Builder;

use crate::faults::SERVER;
use crate::{worker, world};

/// Time without a request. The clocks differ by more than a standstill that is noticed after it.
const IDLE: Duration = Duration::from_secs(20 * 60);
/// The number of times.
const TIMES: u32 = 3;
/// Time within which all of it is over.
const ENOUGH: Duration = Duration::from_secs(2 * 60 * 60);

/// Runs it: each try after a long time has to be granted at once.
///
/// # Errors
/// If one is not.
pub(crate) fn run() -> Result<(), String> {
    let store = Rc::new(RefCell::new(Store::started(0)));
    let mut sim = Builder::new()
        .rng_seed(1)
        .epoch(std::time::UNIX_EPOCH)
        .simulation_duration(ENOUGH)
        .min_message_latency(Duration::ZERO)
        .max_message_latency(Duration::from_millis(1))
        .tick_duration(Duration::from_millis(20))
        .build();
    sim.host(SERVER, move || world::serve(store.clone(), || world::now() / 1_000 * 997));
    sim.client("client", async {
        let locks = worker::connect().await;
        while locks.mutex("a").lock().await.is_err() {}
        for _ in 0..TIMES {
            tokio::time::sleep(IDLE).await;
            let guard = locks.mutex("a").try_lock().await?.ok_or("somebody else has it")?;
            guard.release().await?;
        }
        let _ = locks.close().await;
        Ok(())
    });
    sim.run().map_err(|error| error.to_string())
}
