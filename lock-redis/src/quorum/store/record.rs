//! The text that a server of a quorum holds of a lock, `<nonce>:<round>:<µs>:<owner JSON>`, as `inspect` reads it.

use std::time::Duration;

use lock_core::Holder;

/// The answer of `PTTL` for a key that does not exist.
const NO_KEY: i64 = -2;

/// The end of what a reserved lock holds, behind the client's id.
const RESERVED: &[u8] = b":0:0:";

/// One server's view of a lock.
#[derive(Debug, Clone)]
pub(in crate::quorum) struct ServerView {
    pub(in crate::quorum) holder: Holder,
    /// The holder, by what is the same on every server: our nonce, or all of a foreign client's value; `None` if it is free.
    pub(in crate::quorum) by: Option<Vec<u8>>,
}

impl ServerView {
    /// Reads what the server holds at its time `now`, in µs, and for how many ms from then.
    pub(in crate::quorum) fn read(now: i64, held: &[u8], ends_in: i64) -> Self {
        if ends_in == NO_KEY || is_reserved(held) {
            return Self { holder: Holder::unknown(), by: None };
        }
        let mut holder = ours(held, now).unwrap_or_else(Holder::unknown);
        holder.expires_in = u64::try_from(ends_in).ok().map(Duration::from_millis);
        let by = holder.grant.map_or_else(|| held.to_vec(), |grant| grant.to_string().into_bytes());
        Self { holder, by: Some(by) }
    }
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

#[cfg(test)]
mod tests {
    use lock_core::Owner;

    use super::*;

    #[test]
    fn our_holders_are_known_and_foreign_ones_are_told_apart() {
        let owner = Owner::new().with_label("a:b");
        let json = serde_json::to_string(&owner).unwrap();
        let nonce = "00112233445566778899aabbccddeeff";
        let known = ServerView::read(3_500_000, format!("{nonce}:77:1000000:{json}").as_bytes(), 1500);
        assert_eq!(known.by.as_deref(), Some(nonce.as_bytes()));
        let known_owner = known.holder.owner.as_ref();
        assert_eq!(known_owner.map(|owner| (owner.id(), owner.to_string())), Some((owner.id(), owner.to_string())));
        assert_eq!(known.holder.held_for, Some(Duration::from_millis(2500)));
        assert_eq!(known.holder.expires_in, Some(Duration::from_millis(1500)));
        for foreign in [&b""[..], b"\xff\xfe", b"0f8fad5bd9cb469fa16570867728950e", b"host:1:2:3"] {
            let seen = ServerView::read(0, foreign, -1);
            assert_eq!((seen.by.as_deref(), seen.holder), (Some(foreign), Holder::unknown()));
        }
        assert!(ServerView::read(0, b"", NO_KEY).by.is_none());
        assert!(ServerView::read(0, format!("{nonce}:0:0:").as_bytes(), 40).by.is_none(), "reserved is free");
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
                let ServerView { holder, by } = ServerView::read(now, held, ends_in);
                let Some(by) = by else {
                    assert!(is_reserved(held));
                    continue;
                };
                assert!(held.starts_with(&by) || holder.grant.is_some());
                assert!(holder.grant.is_some() || holder.owner.is_none());
            }
            assert!(ServerView::read(0, held, NO_KEY).by.is_none());
        });
    }
}
