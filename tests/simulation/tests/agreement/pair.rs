//! A real server and a simulated one that are asked the same.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use lock_testkit_servers::WallClock;
use lock_testkit_servers::resp::{Resp, Value};
use simulation::redis::bytes::Bytes;
use simulation::redis::resp::Value as Simulated;
use simulation::redis::server::Server;
use simulation::redis::store::Store;

use crate::scripts::Script;

/// Stands before every script: pushes are noted under the last key, where they can be compared.
const NOTED: &str = "
local server, noted = redis, KEYS[#KEYS]
local function seen(call, command, ...)
  if command == 'PUBLISH' then return call('RPUSH', noted, table.concat({ ... }, ' ')) end
  return call(command, ...)
end
local redis = {
  call = function(...) return seen(server.call, ...) end,
  pcall = function(...) return seen(server.pcall, ...) end,
  error_reply = server.error_reply,
}
";

/// A script that tells the type, the remaining time and the contents of each key.
const LOOK: &str = "
local found = {}
for i, key in ipairs(KEYS) do
  local kind, held = redis.call('TYPE', key).ok, ''
  if kind == 'string' then held = redis.call('GET', key) end
  if kind == 'hash' then held = redis.call('HGETALL', key) end
  if kind == 'zset' then held = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  if kind == 'list' then held = redis.call('LRANGE', key, 0, -1) end
  found[i] = { kind, redis.call('PTTL', key), held }
end
return found
";

/// The content of one key.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) kind: String,
    /// The ms for which it lives on; negative: not at all, or for ever.
    pub(crate) left: i64,
    pub(crate) content: Value,
}

/// The two.
pub(crate) struct Pair {
    real: Resp,
    clock: WallClock,
    simulated: Rc<Server>,
    lag: Duration,
    /// The digests of the scripts, by the digest of the library's request.
    digests: HashMap<&'static str, String>,
    /// The time that both clocks show, since the epoch.
    pub(crate) now: Duration,
    /// The number of commands that both were asked.
    pub(crate) steps: u64,
}

impl Pair {
    pub(crate) fn new(real: Resp, clock: WallClock) -> Self {
        let simulated = Server::new(Rc::new(RefCell::new(Store::default()))).unwrap();
        Self { real, clock, simulated, lag: Duration::ZERO, digests: HashMap::new(), now: Duration::ZERO, steps: 0 }
    }

    /// The simulated clock is so much behind.
    pub(crate) fn with_lag(self, lag: Duration) -> Self {
        Self { lag, ..self }
    }

    /// Runs a script on both; their answer, or how they differ.
    pub(crate) async fn run(&mut self, script: &'static Script, keys: &[&str], args: &[&str]) -> Result<Value, String> {
        self.evaluate(&script.digest, || format!("{NOTED}{}", script.code), keys, args).await
    }

    /// Returns what there is under each key, if both hold the same.
    pub(crate) async fn look(&mut self, keys: &[String]) -> Result<Vec<Look>, String> {
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let found = self.evaluate("look", || LOOK.to_owned(), &keys, &[]).await?;
        let look = |key: Value| {
            let [kind, left, content] = key.into_parts().try_into().unwrap();
            Look { kind: kind.as_text().unwrap(), left: left.as_int().unwrap(), content }
        };
        Ok(found.into_parts().into_iter().map(look).collect())
    }

    async fn evaluate(
        &mut self,
        name: &'static str,
        code: impl Fn() -> String,
        keys: &[&str],
        args: &[&str],
    ) -> Result<Value, String> {
        if !self.digests.contains_key(name) {
            let digest = self.command(&["SCRIPT", "LOAD", &code()]).await?;
            self.digests.insert(name, digest.to_string());
        }
        let (digest, count) = (self.digests[name].clone(), keys.len().to_string());
        let command = ["EVALSHA", &digest, &count].into_iter().chain(keys.iter().chain(args).copied());
        self.command(&command.collect::<Vec<_>>()).await
    }

    /// Asks both; their answer, or how they differ.
    pub(crate) async fn command(&mut self, command: &[&str]) -> Result<Value, String> {
        self.steps += 1;
        self.clock.stand_at(self.now).unwrap();
        let real = self.real.command(command).await.unwrap_or_else(|error| Value::Error(code(&error.to_string())));
        let bytes: Vec<Bytes> = command.iter().map(|part| part.as_bytes().to_vec()).collect();
        let now = u64::try_from((self.now - self.lag).as_micros()).unwrap();
        let simulated = seen(self.simulated.command(&bytes, now));
        if real == simulated {
            return Ok(real);
        }
        Err(format!("{command:?} at {:?}\nreal:      {real}\nsimulated: {simulated}", self.now))
    }
}

/// An answer as the testkit's client reads it.
fn seen(value: Simulated) -> Value {
    match value {
        Simulated::Status(text) => Value::Status(text.to_owned()),
        Simulated::Error(text) => Value::Error(code(&text)),
        Simulated::Number(number) => Value::Int(number),
        Simulated::Text(bytes) => Value::Bulk(bytes),
        Simulated::Nil => Value::Nil,
        Simulated::Many(values) => Value::Array(values.into_iter().map(seen).collect()),
    }
}

/// Returns the first word of an error, which tells errors apart: a server's version decides about the rest of the text.
fn code(error: &str) -> String {
    error.split(' ').next().unwrap_or_default().to_owned()
}
