//! C-M17, C-M18, C-D09: holders in processes of their own, which are killed, end without a release, or stand still.
//!
//! The test binary starts itself again as the holder: the order travels in one environment variable, and the holder
//! says on its standard output when it holds and, for each line that it is sent, whether it still does.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use lock_core::LeaseOptions;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::adapters::Form;
use crate::context::{Cx, LOCK};
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::harness::Harness;
use crate::time::{promptly, soon, ttl};

/// The variable in which the parent tells the child what to hold.
const ORDER_VARIABLE: &str = "LOCK_TESTKIT_HOLD";

/// What the holder prints when it holds, and when it does not hold any more.
const HELD: &str = "lock-testkit: held";
const LOST: &str = "lock-testkit: lost";

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

/// The child's whole work: hold, say so, look again at every line, and end without a release when the parent closes the
/// pipe (or is gone itself).
pub(crate) async fn hold_for_parent<H: Harness>(order: Order) -> Verdict {
    let harness = H::attach(&order.endpoint).await?;
    let locks = harness.connect(&order.namespace).await?;
    let lease = LeaseOptions::with_ttl(std::time::Duration::from_millis(order.ttl_ms));
    let held = order.form.handle(&locks, LOCK)?.with_lease(lease).lock().await?;
    println!("{HELD}");
    let mut questions = BufReader::new(tokio::io::stdin()).lines();
    while questions.next_line().await?.is_some() {
        println!("{}", if held.is_held() { HELD } else { LOST });
    }
    // As an application that ends at once: no destructor runs, nothing is released.
    std::mem::forget(held);
    std::process::exit(0)
}

/// A child that holds the case's lock. Killed when this is dropped.
struct Holder {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
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
        let lines = BufReader::new(child.stdout.take().or_fail("the child has no output")?).lines();
        let mut holder = Self { child, lines };
        let line = holder.says().await?;
        ensure!(line.as_deref() == Some(HELD), "the child did not get the lock: {line:?}");
        Ok(holder)
    }

    /// Asks whether it still holds. A process that stands still finds the question when it goes on.
    async fn ask(&mut self) -> Verdict {
        let input = self.child.stdin.as_mut().or_fail("the child has no input")?;
        Ok(input.write_all(b"?\n").await?)
    }

    async fn says(&mut self) -> Result<Option<String>, Failure> {
        Ok(soon("the child says something", promptly(), self.lines.next_line()).await??)
    }

    fn signal(&self, signal: Signal) -> Verdict {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).or_fail("the child is gone")?;
        Ok(kill_process(id, signal)?)
    }

    /// Lets it end by itself, without a release.
    async fn ends(&mut self) -> Verdict {
        drop(self.child.stdin.take());
        let status = soon("the holder ends", promptly(), self.child.wait()).await??;
        ensure!(status.success(), "the holder failed: {status}");
        Ok(())
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
    holder.ends().await?;
    let held = next
        .try_lock_for(cx.freed_by(ttl()))
        .await?
        .or_fail("still taken although the dead holder's TTL is long over")?;
    held.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_process_that_stood_still_past_its_lease_does_not_hold(cx: Arc<Cx>) -> Verdict {
    let next = cx.contender().await?;
    let mut holder = Holder::start(&cx).await?;
    holder.ask().await?;
    ensure!(holder.says().await?.as_deref() == Some(HELD), "lost before it was stopped");
    holder.signal(Signal::STOP)?;
    let held = next
        .try_lock_for(cx.freed_by(ttl()))
        .await?
        .or_fail("still taken although the stopped holder's TTL is long over")?;
    holder.ask().await?;
    holder.signal(Signal::CONT)?;
    let line = holder.says().await?;
    ensure!(line.as_deref() == Some(LOST), "its first look says: {line:?}");
    // It also cleans up what it takes for its own, and that must not be this.
    holder.ask().await?;
    ensure!(holder.says().await?.as_deref() == Some(LOST), "a lost lock came back");
    ensure!(held.is_held(), "the next holder lost its lock to the one that was stopped");
    held.release().await?;
    holder.ends().await?;
    cx.nothing_is_left().await
}
