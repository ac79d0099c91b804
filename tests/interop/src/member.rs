//! Our own member; member.py and member.js do the same.

use std::time::Duration;

use lock_redis::{LockName, RedisLocks};
use lock_testkit::Broken;
use lock_testkit::servers::resp::Resp;
use rustix::process::{Signal, getpid, kill_process};
use tokio::time::sleep;

use crate::plan::{Instant, Plan};
use crate::record::Event;

/// Takes turns until the plan's end.
pub(crate) async fn run(plan: &Plan) -> Result<(), Broken> {
    let locks = RedisLocks::connect(plan.url.as_str()).await?;
    let lock = locks.mutex(LockName::at_key(plan.key.as_str())?).with_ttl(Duration::from_millis(plan.ttl_ms));
    let client = Resp::from_url(&plan.url)?;
    say(&Event::Ready { library: "lock-redis".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })?;
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
        guard.while_held(count(&client, &plan.counter, Duration::from_millis(work_ms))).await??;
        // Before the release: it stops to believe in the lock when it asks for that, not when it has the answer.
        say(&Event::Releases { at: Instant::now() })?;
        guard.release().await?;
        sleep(Duration::from_millis(plan.pause_ms)).await;
    }
    Ok(locks.close().await?)
}

/// Two commands with a pause between them: only the lock keeps others from counting the same number.
async fn count(client: &Resp, counter: &str, work: Duration) -> Result<(), Broken> {
    let value: u64 = client.command(&["GET", counter]).await?.as_text().map_or(Ok(0), |text| text.parse())?;
    sleep(work).await;
    client.command(&["SET", counter, &(value + 1).to_string()]).await?;
    Ok(())
}

fn say(event: &Event) -> Result<(), Broken> {
    println!("{}", serde_json::to_string(event)?);
    Ok(())
}
