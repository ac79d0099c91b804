//! An operator's view of the nodes in the queue.

use async_trait::async_trait;
use lock_core::driver::{Kind, Operator};
use lock_core::{Error, GrantId, Holder, Inspection, LockName, Owner, Phase, Waiter};
use lock_testkit::HarnessError;

use super::queue::{Queue, grant, is_shared};

#[async_trait]
impl Operator for Queue {
    async fn inspect(&self, name: &LockName, kind: Kind) -> Result<Inspection, Error> {
        let queue = self.everybody(name, kind).await.map_err(|error| unanswered(name, &error))?;
        let mut inspection = Inspection::default();
        for (place, node) in queue.iter().enumerate() {
            let is_let_in = place == 0 || queue[..=place].iter().all(|node| is_shared(node));
            if is_let_in {
                let mut holder = Holder::unknown();
                (holder.grant, holder.shared) = (grant(node), is_shared(node));
                inspection.holders.push(holder);
            } else {
                inspection.waiters.extend(grant(node).map(Waiter::new));
            }
        }
        Ok(inspection)
    }

    async fn force_release(
        &self,
        name: &LockName,
        kind: Kind,
        freed: GrantId,
        _by: &Owner,
        _why: &str,
    ) -> Result<bool, Error> {
        let queue = self.everybody(name, kind).await.map_err(|error| unanswered(name, &error))?;
        let Some(node) = queue.iter().find(|node| grant(node) == Some(freed)) else { return Ok(false) };
        self.session.delete(self.path(name, kind, node)).await.map_err(|error| unanswered(name, &error))
    }
}

fn unanswered(name: &LockName, error: &HarnessError) -> Error {
    Error::unavailable(Phase::Inspect, error.to_string()).with_name(name)
}
