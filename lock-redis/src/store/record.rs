//! The records of holders and waiters, as the scripts keep them, for `inspect` to read.

use std::time::Duration;

use lock_core::{Error, Holder, Waiter};

use super::reply::Fields;

/// The answer of `PTTL` for a key that does not exist.
const NO_KEY: i64 = -2;

/// The holder of a mutex, if it has one.
pub(crate) fn the_holder(mut fields: Fields<'_>, now: i64) -> Result<Vec<Holder>, Error> {
    let (held, ends_in) = (fields.bytes()?, fields.number()?);
    // A foreign client may hold it with an empty value.
    if ends_in == NO_KEY {
        return Ok(Vec::new());
    }
    let mut holder = holder(&held, now);
    holder.expires_in = u64::try_from(ends_in).ok().map(Duration::from_millis);
    Ok(vec![holder])
}

/// The holders of the other kinds whose leases have not ended, the earliest first.
pub(crate) fn all_holders(fields: &[(String, String)], now: i64) -> Vec<Holder> {
    let mut holders: Vec<_> = fields.iter().filter_map(|(nonce, record)| one_of_many(nonce, record, now)).collect();
    holders.sort_by_key(|holder| holder.token);
    holders
}

/// `<end ms>:<token>:<client>:<mode>:<owner JSON>`
fn one_of_many(nonce: &str, record: &str, now: i64) -> Option<Holder> {
    let grant = nonce.parse().ok()?;
    let [ends, token, _client, mode, owner] = record.splitn(5, ':').collect::<Vec<_>>().try_into().ok()?;
    let mut holder = Holder::unknown();
    holder.grant = Some(grant);
    holder.token = Some(token.parse().ok()?);
    holder.owner = serde_json::from_str(owner).ok();
    holder.permits = permits(mode);
    holder.shared = mode.starts_with(['R', 'P']);
    holder.held_for = since(token, now);
    let left = ends.parse::<i64>().ok()?.checked_sub(now / 1000)?;
    holder.expires_in = Some(Duration::from_millis(u64::try_from(left).ok().filter(|left| *left > 0)?));
    Some(holder)
}

/// The weight of a mode, as `scripts/holders/many.lua` has it.
fn permits(mode: &str) -> u32 {
    let number = mode.strip_prefix('P').and_then(|rest| rest.split_once('/')).map(|(permits, _)| permits.parse());
    number.and_then(Result::ok).unwrap_or(1)
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

pub(crate) fn waiter(member: &str, ticket: &str, entry: &str, now: i64) -> Option<Waiter> {
    let (nonce, _client) = member.split_once(':')?;
    let mut waiter = Waiter::new(nonce.parse().ok()?);
    // `<TTL ms><mode><owner JSON>`
    if let Some((wish, _)) = entry.split_once('{') {
        waiter.owner = serde_json::from_str(&entry[wish.len()..]).ok();
        waiter.permits = permits(wish.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    waiter.waiting_for = since(ticket, now);
    Some(waiter)
}

/// The time from `start`, in µs of the server's clock, until now; `None` if `start` lies well ahead, as tokens and tickets do after the
/// clock was set back. Tokens of one moment are counted on, a little ahead of the clock.
fn since(start: &str, now: i64) -> Option<Duration> {
    const AHEAD: f64 = 1e6;
    // Sorted sets may write a large score as 1.7e15.
    let start: f64 = start.parse().ok()?;
    let passed = now as f64 - start;
    Duration::try_from_secs_f64(passed.max(0.0) / 1e6).ok().filter(|_| passed >= -AHEAD)
}

#[cfg(test)]
mod tests {
    use lock_core::{GrantId, Owner};

    use super::*;

    #[test]
    fn our_holders_are_known_and_foreign_ones_are_not() {
        let owner = Owner::new().with_label("a:b");
        let json = serde_json::to_string(&owner).unwrap();
        for mark in ["", "!"] {
            let held = format!("00112233445566778899aabbccddeeff:0123456789abcdef:{json}:1000000{mark}");
            let known = holder(held.as_bytes(), 3_500_000);
            assert_eq!((known.token, known.held_for), (Some(1_000_000), Some(Duration::from_millis(2500))));
            let known_owner = known.owner.as_ref();
            assert_eq!(known_owner.map(|owner| (owner.id(), owner.to_string())), Some((owner.id(), owner.to_string())));
        }
        let ahead = format!("00112233445566778899aabbccddeeff:0123456789abcdef:{json}:5000000");
        assert_eq!(holder(ahead.as_bytes(), 3_500_000).held_for, None, "the clock was set back");
        for foreign in [&b"\xff\xfe"[..], b"0f8fad5bd9cb469fa16570867728950e", b"host:1:2"] {
            assert_eq!(holder(foreign, 0), Holder::unknown());
        }
    }

    #[test]
    fn what_a_key_from_outside_holds_is_ours_only_if_it_begins_with_a_grant_and_ends_with_a_token() {
        let json = serde_json::to_string(&Owner::new().with_label("a:b")).unwrap();
        let samples = [
            format!("00112233445566778899aabbccddeeff:0123456789abcdef:{json}:1000000!"),
            "0f8fad5bd9cb469fa16570867728950e".to_owned(),
            "8f0ad9a1-6f4b-4c1d-9b1e-0123456789ab:47".to_owned(),
        ];
        let samples: Vec<_> = samples.iter().map(String::as_bytes).collect();
        lock_testkit::fuzz::bytes("what a mutex's key holds", &samples, |held| {
            let known = holder(held, 3_500_000);
            let Some(grant) = known.grant else {
                assert_eq!(known, Holder::unknown());
                return;
            };
            let held = std::str::from_utf8(held).unwrap();
            assert_eq!(held.split(':').next().unwrap().parse::<GrantId>().unwrap(), grant);
            let token = held.strip_suffix('!').unwrap_or(held).rsplit(':').next().unwrap();
            assert_eq!(token.parse().ok(), known.token);
        });
    }

    #[test]
    fn records_of_holders_and_waiters_from_outside_are_read_or_left_out() {
        const NONCE: &str = "00112233445566778899aabbccddeeff";
        let json = serde_json::to_string(&Owner::new().with_label("a:b")).unwrap();
        let records = [
            format!("9000:1000000:0123456789abcdef:R:{json}"),
            format!("9000:1000000:0123456789abcdef:P3/10:{json}"),
            format!("2000P3/10{json}"),
            "1.7e15".to_owned(),
        ];
        let records: Vec<_> = records.iter().map(String::as_str).collect();
        lock_testkit::fuzz::texts("records of holders and waiters", &records, |record| {
            if let Some(holder) = one_of_many(NONCE, record, 3_500_000) {
                assert!(holder.expires_in.is_some_and(|left| !left.is_zero()) && holder.token.is_some());
                assert_eq!(holder.grant.unwrap().to_string(), NONCE);
            }
            let waits = waiter(&format!("{NONCE}:0123456789abcdef"), record, record, 3_500_000).unwrap();
            assert_eq!(waits.attempt.to_string(), NONCE);
            if let Some(waiter) = waiter(record, "1", record, 0) {
                assert_eq!(record.split(':').next().unwrap().parse::<GrantId>().unwrap(), waiter.attempt);
            }
        });
    }
}
