//! The work of one worker, whatever the workload.

use lock_core::Locks;
use lock_testkit::HarnessError;

use crate::plan::Plan;
use crate::workload::Workload;
use crate::{jobs, leaders, worker};

/// Works until the plan's end, and closes the client.
pub(crate) async fn carry_out(plan: &Plan, locks: Locks) -> Result<(), HarnessError> {
    match plan.workload {
        Workload::Locks => worker::work(plan, locks).await,
        Workload::Once => jobs::work(plan, locks).await,
        Workload::Leader => leaders::work(plan, locks).await,
    }
}
