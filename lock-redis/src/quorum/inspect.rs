//! The operator's side: what a majority of the servers says, and freeing a grant by force on all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::clock::BootInstant;
use lock_core::driver::{Kind, Operator, Released};
use lock_core::{Error, ErrorKind, GrantId, Holder, Inspection, LeaseOptions, LockName, Owner, Phase};

use super::NAME;
use super::member::Member;
use super::members::Members;
use super::release_requests::ReleaseRequests;
use super::script_request::ScriptRequest;
use super::scripts;
use crate::client::link::call::Call;
use crate::client::link::request::Failed;
use crate::store::keys::KeySpace;

/// One server's view of a lock.
#[derive(Debug, Clone)]
struct ServerView {
    holder: Holder,
    /// The holder, by what is the same on every server: our nonce, or all of a foreign client's value; `None` if it is free.
    by: Option<Vec<u8>>,
}

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
        let answers = self.requests.send(&self.requests.force(name, grant, &why)?);
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
    Ok(seen(now, &held, ends_in))
}

/// The answer of `PTTL` for a key that does not exist.
const NO_KEY: i64 = -2;

/// The end of what a reserved lock holds, behind the client's id.
const RESERVED: &[u8] = b":0:0:";

fn seen(now: i64, held: &[u8], ends_in: i64) -> ServerView {
    if ends_in == NO_KEY || is_reserved(held) {
        return ServerView { holder: Holder::unknown(), by: None };
    }
    let mut holder = ours(held, now).unwrap_or_else(Holder::unknown);
    holder.expires_in = u64::try_from(ends_in).ok().map(Duration::from_millis);
    let by = holder.grant.map_or_else(|| held.to_vec(), |grant| grant.to_string().into_bytes());
    ServerView { holder, by: Some(by) }
}

/// Whether a lock is free, and kept for a waiting client for a moment: `<client>:0:0:`.
fn is_reserved(held: &[u8]) -> bool {
    held.len() == 32 + RESERVED.len() && held.ends_with(RESERVED)
}

/// `<nonce>:<round>:<µs>:<owner JSON>`.
fn ours(held: &[u8], now: i64) -> Option<Holder> {
    let mut fields = std::str::from_utf8(held).ok()?.splitn(4, ':');
    let mut holder = Holder::unknown();
    holder.grant = Some(fields.next()?.parse().ok()?);
    let _round: u64 = fields.next()?.parse().ok()?;
    let since: i64 = fields.next()?.parse().ok()?;
    holder.held_for = u64::try_from(now.saturating_sub(since)).ok().map(Duration::from_micros);
    holder.owner = serde_json::from_str(fields.next()?).ok();
    Some(holder)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_holders_are_known_and_foreign_ones_are_told_apart() {
        let owner = Owner::new().with_label("a:b");
        let json = serde_json::to_string(&owner).unwrap();
        let nonce = "00112233445566778899aabbccddeeff";
        let known = seen(3_500_000, format!("{nonce}:77:1000000:{json}").as_bytes(), 1500);
        assert_eq!(known.by.as_deref(), Some(nonce.as_bytes()));
        let known_owner = known.holder.owner.as_ref();
        assert_eq!(known_owner.map(|owner| (owner.id(), owner.to_string())), Some((owner.id(), owner.to_string())));
        assert_eq!(known.holder.held_for, Some(Duration::from_millis(2500)));
        assert_eq!(known.holder.expires_in, Some(Duration::from_millis(1500)));
        for foreign in [&b""[..], b"\xff\xfe", b"0f8fad5bd9cb469fa16570867728950e", b"host:1:2:3"] {
            let seen = seen(0, foreign, -1);
            assert_eq!((seen.by.as_deref(), seen.holder), (Some(foreign), Holder::unknown()));
        }
        assert!(seen(0, b"", NO_KEY).by.is_none());
        assert!(seen(0, format!("{nonce}:0:0:").as_bytes(), 40).by.is_none(), "reserved is free");
    }

    #[test]
    fn a_holder_from_outside_is_one_of_ours_or_an_unknown_one() {
        let nonce = "00112233445566778899aabbccddeeff";
        let owner = serde_json::to_string(&Owner::new().with_label("a:b")).unwrap();
        let ours = format!("{nonce}:77:1000000:{owner}");
        let reserved = format!("{nonce}:0:0:");
        let samples = [ours.as_bytes(), reserved.as_bytes(), b"", b"host:1:2:3"];
        lock_testkit::fuzz::bytes("what the lock of a quorum holds", &samples, |held| {
            for (now, ends_in) in [(0, -1), (i64::MAX, i64::MAX), (i64::MIN, 5)] {
                let ServerView { holder, by } = seen(now, held, ends_in);
                let Some(by) = by else {
                    assert!(is_reserved(held));
                    continue;
                };
                assert!(held.starts_with(&by) || holder.grant.is_some());
                assert!(holder.grant.is_some() || holder.owner.is_none());
            }
            assert!(seen(0, held, NO_KEY).by.is_none());
        });
    }
}
