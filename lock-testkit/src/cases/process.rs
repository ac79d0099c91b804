//! C-M17, C-M18: holders in processes of their own, which are killed or end without a release.
//!
//! The test binary starts itself again as the holder: the order travels in one environment variable, and the holder
//! says on its standard output when it holds.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use lock_core::LeaseOptions;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::adapters::Form;
use crate::context::{Cx, LOCK};
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::harness::Harness;
use crate::time::{promptly, soon, ttl};

/// The variable in which the parent tells the child what to hold.
const ORDER_VARIABLE: &str = "LOCK_TESTKIT_HOLD";

/// What the holder prints when it holds.
const HELD: &str = "lock-testkit: held";

/// What a child process is to hold.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    endpoint: String,
    namespace: String,
    form: Form,
    ttl_ms: u64,
}

/// The order in this process's environment, if it was started as a holder.
pub(crate) fn order_from_parent() -> Option<Order> {
    serde_json::from_str(&std::env::var(ORDER_VARIABLE).ok()?).ok()
}

/// The child's whole work: hold, say so, and end without a release when the parent closes the pipe (or is gone itself).
pub(crate) async fn hold_for_parent<H: Harness>(order: Order) -> Verdict {
    let harness = H::attach(&order.endpoint).await?;
    let locks = harness.connect(&order.namespace).await?;
    let lease = LeaseOptions::with_ttl(std::time::Duration::from_millis(order.ttl_ms));
    let held = order.form.handle(&locks, LOCK)?.with_lease(lease).lock().await?;
    println!("{HELD}");
    let mut nothing = Vec::new();
    tokio::io::stdin().read_to_end(&mut nothing).await?;
    // As an application that ends at once: no destructor runs, nothing is released.
    std::mem::forget(held);
    std::process::exit(0)
}

/// A child that holds the case's lock. Killed when this is dropped.
struct Holder {
    child: Child,
}

impl Holder {
    async fn start(cx: &Cx) -> Result<Self, Failure> {
        let endpoint = cx.harness.endpoint().or_fail("the case needs processes and did not say so")?;
        let ttl_ms = u64::try_from(ttl().as_millis())?;
        let order = Order { endpoint, namespace: cx.namespace.clone(), form: cx.form, ttl_ms };
        let mut child = Command::new(std::env::current_exe()?)
            .env(ORDER_VARIABLE, serde_json::to_string(&order)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().or_fail("the child has no output")?).lines();
        let line = soon("the child holds the lock", promptly(), lines.next_line()).await??;
        ensure!(line.as_deref() == Some(HELD), "the child did not get the lock: {line:?}");
        Ok(Self { child })
    }
}

pub(super) async fn the_lock_of_a_killed_process_is_free_after_its_ttl(cx: Arc<Cx>) -> Verdict {
    let next = cx.contender().await?;
    let mut holder = Holder::start(&cx).await?;
    cx.is_refused(&next).await?;
    // By the handle of the child that this case started; SIGKILL.
    holder.child.kill().await?;
    let killed = Instant::now();
    let held = next
        .try_lock_for(cx.freed_by(ttl()))
        .await?
        .or_fail("still taken although the dead holder's TTL is long over")?;
    // The last renewal was at most a third of the TTL before the kill.
    ensure!(killed.elapsed() >= ttl() / 2, "granted {:?} after the kill, before the lease's end", killed.elapsed());
    held.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn the_lock_of_a_process_that_ended_is_free_after_its_ttl(cx: Arc<Cx>) -> Verdict {
    let next = cx.contender().await?;
    let mut holder = Holder::start(&cx).await?;
    cx.is_refused(&next).await?;
    drop(holder.child.stdin.take());
    let status = soon("the holder ends", promptly(), holder.child.wait()).await??;
    ensure!(status.success(), "the holder failed: {status}");
    let held = next
        .try_lock_for(cx.freed_by(ttl()))
        .await?
        .or_fail("still taken although the dead holder's TTL is long over")?;
    held.release().await?;
    cx.nothing_is_left().await
}
