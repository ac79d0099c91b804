//! Our own member; member.py and member.js do the same.

use std::time::Duration;

use lock_core::LockName;
use lock_testkit::Broken;
use rustix::process::{Signal, getpid, kill_process};
use tokio::time::sleep;

use crate::plan::{Instant, Plan};
use crate::record::Event;
use crate::server::{Counter, locks};

/// Takes turns until the plan's end.
pub(crate) async fn run(plan: &Plan) -> Result<(), Broken> {
    let ttl = Duration::from_millis(plan.ttl_ms);
    let locks = locks(&plan.url, ttl).await?;
    let lock = locks.mutex(LockName::at_key(plan.key.as_str())?).with_ttl(ttl);
    let counter = Counter::at(&plan.url)?;
    say(&Event::Ready { library: format!("lock-{}", plan.backend), version: env!("CARGO_PKG_VERSION").to_owned() })?;
    sleep(plan.from.since(Instant::now())).await;
    let mut special = Some(&plan.special);
    while Instant::now() < plan.until {
        say(&Event::Asks { at: Instant::now() })?;
        let guard = lock.lock().await?;
        say(&Event::Holds { at: Instant::now() })?;
        let mut work_ms = plan.work_ms;
        if let Some(special) = special.take_if(|special| Instant::now() >= special.at) {
            if special.dies {
                kill_process(getpid(), Signal::KILL)?;
            }
            work_ms = special.work_ms;
        }
        guard.while_held(count(&counter, &plan.counter, Duration::from_millis(work_ms))).await??;
        // Before the release: it stops to believe in the lock when it asks for that, not when it has the answer.
        say(&Event::Releases { at: Instant::now() })?;
        guard.release().await?;
        sleep(Duration::from_millis(plan.pause_ms)).await;
    }
    Ok(locks.close().await?)
}

/// Two commands with a pause between them: only the lock keeps others from counting the same number.
async fn count(counter: &Counter, key: &str, work: Duration) -> Result<(), Broken> {
    let value = counter.read(key).await?;
    sleep(work).await;
    counter.write(key, value + 1).await
}

fn say(event: &Event) -> Result<(), Broken> {
    println!("{}", serde_json::to_string(event)?);
    Ok(())
}
