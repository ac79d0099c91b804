//! A client of another library, as redis-py, node-redlock, redsync and redislock do it: a random value under the key, and a
//! release that compares it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{Error, GrantId};

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// The value that the client puts into a key, until it releases it.
#[derive(Debug, Default)]
pub(crate) struct ForeignClient(Mutex<HashMap<String, String>>);

impl ForeignClient {
    /// The command that takes the key if it is free.
    pub(crate) fn take(&self, key: &str, ttl: Duration) -> Result<[String; 6], Error> {
        let fresh = GrantId::random()?.to_string();
        let token = self.keys().entry(key.to_owned()).or_insert(fresh).clone();
        Ok(["SET".into(), key.into(), token, "NX".into(), "PX".into(), ttl.as_millis().to_string()])
    }

    /// The command that deletes the key if it has what this client has put there; it answers 1 if it did.
    pub(crate) fn release(&self, key: &str) -> [String; 5] {
        let token = self.keys().remove(key).unwrap_or_default();
        ["EVAL".into(), COMPARE_AND_DELETE.into(), "1".into(), key.into(), token]
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
