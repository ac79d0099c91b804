//! The operator's side: what a majority of the servers says, and freeing a grant by force on all of them.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use lock_core::clock::BootInstant;
use lock_core::driver::{Kind, Operator, Released};
use lock_core::{Error, ErrorKind, GrantId, Holder, Inspection, LeaseOptions, LockName, Owner, Phase};

use super::NAME;
use super::client::member::Member;
use super::client::members::Members;
use super::client::send_queue::ScriptRequest;
use super::release::requests::ReleaseRequests;
use super::store::record::ServerView;
use super::store::scripts;
use crate::client::link::request::Failed;
use crate::store::call::Call;
use crate::store::keys::KeySpace;

/// The operator's side of one client.
#[derive(Debug)]
pub(super) struct Inspector {
    members: Arc<Members>,
    requests: Arc<ReleaseRequests>,
    keys: Arc<KeySpace>,
}

impl Inspector {
    /// The inspector of the locks at these servers.
    pub(super) fn new(members: &Arc<Members>, requests: &Arc<ReleaseRequests>, keys: &Arc<KeySpace>) -> Self {
        Self { members: members.clone(), requests: requests.clone(), keys: keys.clone() }
    }
}

#[async_trait]
impl Operator for Inspector {
    async fn inspect(&self, name: &LockName, kind: Kind) -> Result<Inspection, Error> {
        only_mutex(kind)?;
        let (keys, until) = (self.keys.checked(name, Kind::Mutex)?, self.members.until());
        let request = Arc::new(ScriptRequest::new(&scripts::INSPECT, Call::of([keys.lock]), Phase::Inspect));
        let mut asked = self.members.ask(|member| look(member, request.clone(), until));
        let (mut seen, mut reasons) = (HashMap::<_, Vec<_>>::new(), Vec::new());
        while let Some((_, answer)) = asked.next_until(until).await {
            match answer {
                Ok(ServerView { holder, by }) => {
                    let holders = seen.entry(by.clone()).or_default();
                    holders.push(holder);
                    if holders.len() >= self.members.majority() {
                        return Ok(inspection(by.is_some().then(|| merged(holders))));
                    }
                }
                Err(error) => reasons.push(error),
            }
        }
        let answered: usize = seen.values().map(Vec::len).sum();
        if answered < self.members.majority() {
            return Err(self.members.too_few(Phase::Inspect, reasons));
        }
        // Nobody has a majority: attempts that are about to be undone, or remains of a lease that is over.
        Ok(inspection(None))
    }

    async fn force_release(
        &self,
        name: &LockName,
        kind: Kind,
        grant: GrantId,
        by: &Owner,
        why: &str,
    ) -> Result<bool, Error> {
        only_mutex(kind)?;
        let why = serde_json::json!([by.to_string(), why]).to_string();
        let answers = self.requests.force(name, grant, &why)?;
        let is_released = self.requests.confirmed(answers, Phase::Inspect).await?.released == Released::Done;
        if is_released {
            // Another client made this grant, and a server that is away may keep it. Sent only now: a forced release that failed must not
            // happen later.
            drop(self.requests.send(&self.requests.left_over(name, grant, LeaseOptions::MAX_TTL)));
        }
        Ok(is_released)
    }
}

/// Asks one server; reads `{lock, now µs, what it holds, PTTL}`.
async fn look(member: Arc<Member>, request: Arc<ScriptRequest>, until: BootInstant) -> Result<ServerView, Error> {
    let raw = member.ask(&request, until).await.map_err(|Failed { error, .. }| error)?;
    let mut fields = member.fields(raw, request.call.keys().next().unwrap_or_default(), Phase::Inspect)?;
    let (now, held, ends_in) = (fields.number()?, fields.bytes()?, fields.number()?);
    Ok(ServerView::read(now, &held, ends_in))
}

/// The view that a majority has in common: held since the first of them granted it, and until the first of them frees it.
fn merged(holders: &[Holder]) -> Holder {
    let mut holder = holders.first().cloned().unwrap_or_else(Holder::unknown);
    holder.held_for = holders.iter().filter_map(|holder| holder.held_for).max();
    holder.expires_in = holders.iter().filter_map(|holder| holder.expires_in).min();
    holder
}

fn inspection(holder: Option<Holder>) -> Inspection {
    let mut inspection = Inspection::default();
    inspection.holders.extend(holder);
    inspection
}

fn only_mutex(kind: Kind) -> Result<(), Error> {
    if kind == Kind::Mutex {
        return Ok(());
    }
    let what = format!("no {} on a quorum of servers", kind.space());
    Err(Error::new(ErrorKind::Unsupported, Phase::Inspect, what).with_backend(NAME))
}
