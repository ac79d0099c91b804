//! The operator's side: who holds, who waits, and freeing a grant by force.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{Kind, Operator};
use lock_core::{Error, ErrorKind, GrantId, Holder, Inspection, LockName, Owner, Phase, Waiter};

use crate::backend::RedisBackend;
use crate::reply::Fields;
use crate::script;

/// What `PTTL` says of a key that does not exist.
const NO_KEY: i64 = -2;

#[async_trait]
impl Operator for RedisBackend {
    async fn inspect(&self, name: &LockName, kind: Kind) -> Result<Inspection, Error> {
        only_mutex(kind)?;
        let shared = &self.shared;
        let keys = shared.keys(name);
        let reply = shared.run_once(&script::INSPECT, &keys, &[], Phase::Inspect).await?;
        let mut fields = Fields::of(reply.value, Phase::Inspect, shared.link.server())?;
        let now = fields.number()?;
        let held = fields.bytes()?;
        let ends_in = fields.number()?;
        let (queue, cards) = (fields.texts()?, fields.texts()?);
        let mut inspection = Inspection::default();
        // A foreign client may hold it with an empty value.
        if ends_in != NO_KEY {
            let mut holder = holder(&held, now);
            holder.expires_in = u64::try_from(ends_in).ok().map(Duration::from_millis);
            inspection.holders.push(holder);
        }
        let cards: HashMap<_, _> = cards.chunks_exact(2).map(|pair| (&*pair[0], &*pair[1])).collect();
        inspection.waiters = queue.chunks_exact(2).filter_map(|pair| waiter(&pair[0], &pair[1], &cards, now)).collect();
        Ok(inspection)
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
        let shared = &self.shared;
        let keys = shared.keys(name);
        let nonce = grant.to_string();
        let foreign: &[u8] = if keys.shared { b"1" } else { b"" };
        let why = serde_json::json!([by.to_string(), why]).to_string();
        let args = [nonce.as_bytes(), shared.channels.as_bytes(), foreign, why.as_bytes()];
        let reply = shared.run_once(&script::FORCE, &keys, &args, Phase::Inspect).await?;
        Ok(shared.fields(reply.value, &nonce, Phase::Inspect)?.number()? == 1)
    }
}

fn only_mutex(kind: Kind) -> Result<(), Error> {
    if kind == Kind::Mutex {
        return Ok(());
    }
    let what = format!("no {} on Redis yet", kind.space());
    Err(Error::new(ErrorKind::Unsupported, Phase::Inspect, what).with_backend(crate::NAME))
}

/// `<nonce>:<client>:<owner JSON>:<token>`, perhaps with the mark `!`; or a foreign client's text.
fn holder(held: &[u8], now: i64) -> Holder {
    ours(held, now).unwrap_or_else(Holder::unknown)
}

fn ours(held: &[u8], now: i64) -> Option<Holder> {
    let mut fields = std::str::from_utf8(held).ok()?.splitn(3, ':');
    let mut holder = Holder::unknown();
    holder.grant = Some(fields.next()?.parse().ok()?);
    let _client = fields.next()?;
    let (owner, token) = fields.next()?.rsplit_once(':')?;
    let token = token.strip_suffix('!').unwrap_or(token);
    holder.token = Some(token.parse().ok()?);
    // A token is the server's time in µs, unless that stood still.
    holder.held_for = since(token, now);
    holder.owner = serde_json::from_str(owner).ok();
    Some(holder)
}

fn waiter(member: &str, ticket: &str, cards: &HashMap<&str, &str>, now: i64) -> Option<Waiter> {
    let (nonce, _client) = member.split_once(':')?;
    let mut waiter = Waiter::new(nonce.parse().ok()?);
    waiter.owner = cards
        .get(nonce)
        .and_then(|card| serde_json::from_str(card.trim_start_matches(|c: char| c.is_ascii_digit())).ok());
    waiter.waiting_for = since(ticket, now);
    Some(waiter)
}

/// From an instant in µs of the server's clock until now.
fn since(start: &str, now: i64) -> Option<Duration> {
    // Sorted sets may write a large score as 1.7e15.
    let start: f64 = start.parse().ok()?;
    Duration::try_from_secs_f64((now as f64 - start).max(0.0) / 1e6).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_holders_are_known_and_foreign_ones_are_not() {
        let owner = Owner::with_label("a:b");
        let json = serde_json::to_string(&owner).unwrap();
        for mark in ["", "!"] {
            let held = format!("00112233445566778899aabbccddeeff:0123456789abcdef:{json}:1000000{mark}");
            let known = holder(held.as_bytes(), 3_500_000);
            assert_eq!((known.token, known.held_for), (Some(1_000_000), Some(Duration::from_millis(2500))));
            assert_eq!(known.owner.as_ref(), Some(&owner));
        }
        for foreign in [&b"\xff\xfe"[..], b"0f8fad5bd9cb469fa16570867728950e", b"host:1:2"] {
            assert_eq!(holder(foreign, 0), Holder::unknown());
        }
    }
}
