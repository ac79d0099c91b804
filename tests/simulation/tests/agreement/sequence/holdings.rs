//! The content of a lock's keys, as far as the specification knows of it.

use std::collections::{BTreeMap, BTreeSet};

use lock_testkit_servers::resp::Value;

use crate::model::{Holder, Mode};
use crate::pair::Look;

/// The content of the keys.
#[derive(Debug)]
pub(super) struct Holdings {
    /// Of a mutex one text under an empty name, of the other kinds the fields of the hash.
    pub(super) held: BTreeMap<String, String>,
    /// ms until the lock's key ends, and the queue's, if they are there.
    pub(super) lock_left: Option<i64>,
    pub(super) queue_left: Option<i64>,
    /// Members and tickets.
    pub(super) queue: Vec<(String, u64)>,
    pub(super) waiters: BTreeMap<String, String>,
    /// Channel and message.
    pub(super) pushed: Vec<String>,
}

impl Holdings {
    /// Reads those of lock, queue, waiters, tokens, forced and pushes.
    pub(super) fn of(looked: Vec<Look>) -> Self {
        let [lock, queue, waiters, _, _, pushed] = looked.try_into().unwrap();
        let left = |look: &Look| (look.left >= 0).then_some(look.left);
        let (lock_left, queue_left) = (left(&lock), left(&queue));
        let held = match &*lock.kind {
            "string" => BTreeMap::from([(String::new(), lock.content.as_text().unwrap())]),
            _ => pairs(lock.content),
        };
        let queue = many(queue.content);
        let queue = queue.chunks(2).map(|pair| (pair[0].clone(), pair[1].parse::<f64>().unwrap() as u64)).collect();
        Self { held, lock_left, queue_left, queue, waiters: pairs(waiters.content), pushed: many(pushed.content) }
    }

    /// The holders whose leases have not ended at this time, ms.
    pub(super) fn holders(&self, now: u64) -> BTreeSet<Holder> {
        if let Some(held) = self.held.get("") {
            let [nonce, client, _, token] =
                held.trim_end_matches('!').split(':').collect::<Vec<_>>().try_into().unwrap();
            let end = now + self.lock_left.unwrap() as u64;
            return BTreeSet::from([holder(nonce, client, Mode::Mutex, token, end)]);
        }
        let grants = self.held.iter().filter(|(nonce, _)| !nonce.starts_with('#'));
        let grants = grants.map(|(nonce, record)| {
            let [end, token, client, mode, _] = record.split(':').collect::<Vec<_>>().try_into().unwrap();
            holder(nonce, client, Mode::read(mode), token, end.parse().unwrap())
        });
        grants.filter(|holder| holder.end > now).collect()
    }

    /// The instants, in ms, until which these clients count as alive.
    pub(super) fn alive_until<'a>(&self, clients: impl Iterator<Item = &'a String>) -> BTreeMap<String, u64> {
        let until = |client: &String| self.waiters.get(&format!("@{client}")).map_or(0, |until| until.parse().unwrap());
        clients.map(|client| (client.clone(), until(client))).collect()
    }
}

fn holder(nonce: &str, client: &str, mode: Mode, token: &str, end: u64) -> Holder {
    Holder { nonce: nonce.to_owned(), client: client.to_owned(), mode, token: token.parse().unwrap(), end }
}

/// The parts of an answer, which is a list or, in a short way, one text with colons.
pub(super) fn texts(value: Value) -> Vec<String> {
    if let Value::Bulk(_) = value {
        return value.as_text().unwrap().split(':').map(str::to_owned).collect();
    }
    value.into_parts().iter().map(|part| part.as_text().unwrap_or_else(|| part.as_int().unwrap().to_string())).collect()
}

/// As [`texts`]; of a key that is not there none.
fn many(content: Value) -> Vec<String> {
    if matches!(content, Value::Array(_)) { texts(content) } else { Vec::new() }
}

fn pairs(content: Value) -> BTreeMap<String, String> {
    many(content).chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}
