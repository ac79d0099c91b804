//! A contender in a process of its own.
//!
//! The test binary starts itself again: the order travels in one environment variable. The child says on its standard
//! output when it waits and when it holds, answers each line on its standard input with a look at its lock, and ends
//! without a release when that is closed, so also when its parent is gone.

use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{FencingToken, LeaseOptions};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child as Process, ChildStdin, ChildStdout, Command};

use crate::adapters::{Form, Held};
use crate::context::{Cx, LOCK};
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::faults::{Injected, WallClock};
use crate::harness::Harness;
use crate::processes::freeze_child;
use crate::time::{promptly, soon, ttl};

/// The variable in which the parent tells the child what to do.
const ORDER_VARIABLE: &str = "LOCK_TESTKIT_HOLD";

/// The child's messages when it asks for the lock, and when it holds it.
const WAITS: &str = "lock-testkit: waits";
const HOLDS: &str = "lock-testkit: holds";

/// The task of a child process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    endpoint: String,
    namespace: String,
    form: Form,
    ttl_ms: u64,
}

/// The event for which the parent waits before it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The child says that it holds the lock.
    Holder,
    /// The child says that it has asked for the lock.
    Waiter,
}

/// The child's view of its lock at one look.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Look {
    pub(crate) believes: bool,
    pub(crate) token: Option<FencingToken>,
    /// Seconds since 1970.
    pub(crate) wall_clock: i64,
}

impl Look {
    fn at(held: &Held) -> Result<Self, Failure> {
        // First of all: nothing that comes later may help.
        let believes = held.is_held();
        let wall_clock = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().cast_signed();
        Ok(Self { believes, token: held.token(), wall_clock })
    }
}

/// The order in this process's environment, if it was started as a child.
pub(crate) fn order_from_parent() -> Option<Order> {
    serde_json::from_str(&std::env::var(ORDER_VARIABLE).ok()?).ok()
}

/// The child's whole work.
pub(crate) async fn obey<H: Harness>(order: Order) -> Verdict {
    let harness = H::attach(&order.endpoint).await?;
    let locks = harness.connect(&order.namespace).await?;
    let lease = LeaseOptions::new(Duration::from_millis(order.ttl_ms));
    let lock = order.form.handle(&locks, LOCK)?.with_lease(lease);
    println!("{WAITS}");
    let held = lock.lock().await?;
    println!("{HOLDS}");
    let mut questions = BufReader::new(tokio::io::stdin()).lines();
    while questions.next_line().await?.is_some() {
        println!("{}", serde_json::to_string(&Look::at(&held)?)?);
    }
    // As an application that ends at once: no destructor runs, nothing is released.
    std::mem::forget(held);
    std::process::exit(0)
}

/// A child that holds the case's lock, or waits for it. Killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    process: Process,
    questions: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts a child, which goes by this wall clock if there is one.
    pub(crate) async fn start(cx: &Cx, part: Part, clock: Option<&WallClock>) -> Result<Self, Failure> {
        let endpoint = cx.harness.endpoint().or_fail("the case needs processes and did not say so")?;
        let ttl_ms = u64::try_from(ttl().as_millis())?;
        let order = Order { endpoint, namespace: cx.namespace.clone(), form: cx.form, ttl_ms };
        let mut command = clock.map(WallClock::prefix).unwrap_or_default();
        command.push(std::env::current_exe()?.into());
        let mut process = Command::new(&command[0])
            .args(&command[1..])
            .env(ORDER_VARIABLE, serde_json::to_string(&order)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let questions = process.stdin.take().or_fail("the child has no input")?;
        let answers = BufReader::new(process.stdout.take().or_fail("the child has no output")?).lines();
        let mut child = Self { process, questions, answers };
        child.says(WAITS).await?;
        if part == Part::Holder {
            child.holds().await?;
        }
        Ok(child)
    }

    /// Waits until the child holds the lock.
    pub(crate) async fn holds(&mut self) -> Verdict {
        self.says(HOLDS).await
    }

    async fn says(&mut self, what: &str) -> Verdict {
        let line = soon(&format!("the child says {what:?}"), promptly(), self.answers.next_line()).await??;
        ensure!(line.as_deref() == Some(what), "the child says {line:?} instead of {what:?}");
        Ok(())
    }

    /// Asks the child to look at its lock.
    pub(crate) async fn ask(&mut self) -> Verdict {
        Ok(self.questions.write_all(b"look\n").await?)
    }

    /// Returns its look when it was [asked](Child::ask).
    pub(crate) async fn look(&mut self) -> Result<Look, Failure> {
        let line = soon("the child looks", promptly(), self.answers.next_line()).await??;
        Ok(serde_json::from_str(&line.or_fail("the child has ended")?)?)
    }

    /// Lets the child stand still (SIGSTOP) until the guard is dropped.
    pub(crate) fn freeze(&self) -> Result<Injected<'static>, Failure> {
        let pid = self.process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(freeze_child(pid.or_fail("the child has ended")?)?)
    }

    /// Kills the child (SIGKILL) and waits until it is gone.
    pub(crate) async fn kill(mut self) -> Verdict {
        Ok(self.process.kill().await?)
    }

    /// Lets the child end by itself, without a release.
    pub(crate) async fn end(mut self) -> Verdict {
        drop(self.questions);
        let status = soon("the child ends", promptly(), self.process.wait()).await??;
        ensure!(status.success(), "the child failed: {status}");
        Ok(())
    }
}
