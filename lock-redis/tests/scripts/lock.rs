//! One lock at the server, reached by its scripts only, under a clock that the test sets.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use lock_testkit::testing::installed;
use lock_testkit_servers::redis::RedisServer;
use lock_testkit_servers::resp::{Resp, Value};

use crate::scripts::Script;

/// Stands before every script: `TIME` is what the last key says, and pushes are noted under the key before it.
const CLOCK: &str = "
local server = redis
local now, told = { string.match(KEYS[#KEYS], '^(%d+):(%d+)$') }, KEYS[#KEYS - 1]
local function seen(call, command, channel, ...)
  if command == 'TIME' then return now end
  if command == 'PUBLISH' then
    call('RPUSH', told, channel .. ' ' .. ...)
    return call('PUBSUB', 'NUMSUB', channel)[2]
  end
  return call(command, channel, ...)
end
local redis = {
  call = function(...) return seen(server.call, ...) end,
  pcall = function(...) return seen(server.pcall, ...) end,
  error_reply = server.error_reply,
}
";

/// Everything that the keys hold, and what was pushed since the last look.
const LOOK: &str = "
local kind = redis.call('TYPE', KEYS[1]).ok
local held = kind == 'hash' and redis.call('HGETALL', KEYS[1]) or kind == 'string' and { redis.call('GET', KEYS[1]) } or {}
local told = redis.call('LRANGE', KEYS[6], 0, -1)
redis.call('DEL', KEYS[6])
return { held, redis.call('PTTL', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'),
  redis.call('HGETALL', KEYS[3]), redis.call('GET', KEYS[4]) or '', redis.call('GET', KEYS[5]) or '', told }
";

pub(crate) const CHANNELS: &str = "c:";

/// The endings of a lock's keys, in the order of every script.
pub(crate) const ALL: [&str; 5] = ["", ":q", ":w", ":tokens", ":x"];

/// One lock.
pub(crate) struct Lock {
    resp: Resp,
    name: String,
    /// µs.
    pub(crate) now: u64,
    digests: HashMap<&'static str, String>,
}

/// The content of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Data {
    /// Of a mutex one text under an empty name, of the other kinds the fields of the hash.
    pub(crate) held: BTreeMap<String, String>,
    /// Members and tickets.
    pub(crate) queue: Vec<(String, u64)>,
    pub(crate) waiters: BTreeMap<String, String>,
    pub(crate) last_token: String,
    pub(crate) forced: String,
    /// Channel and message.
    pub(crate) told: Vec<String>,
}

impl Data {
    /// The content without its tokens, of which those who ask together have others than those who ask one by one.
    pub(crate) fn without_tokens(mut self) -> Self {
        self.last_token.clear();
        for (field, value) in &mut self.held {
            *value = match &**field {
                // Of a mutex the token is the last part, and of a grant of another kind the second one.
                "" => value.rsplit_once(':').map_or(String::new(), |(rest, token)| {
                    format!("{rest}:{}", token.trim_start_matches(|digit: char| digit.is_ascii_digit()))
                }),
                "#token" => String::new(),
                _ if field.starts_with('#') => continue,
                _ => value.splitn(3, ':').enumerate().map(|(i, part)| if i == 1 { ":" } else { part }).collect(),
            };
        }
        self
    }
}

/// A server of a test's own; `None`, loudly, where no `redis-server` is installed.
pub(crate) async fn server() -> Option<RedisServer> {
    installed(RedisServer::start_own().await)
}

impl Lock {
    pub(crate) fn new(resp: Resp, name: impl Into<String>) -> Self {
        Self { resp, name: name.into(), now: 1_763_703_842_000_000, digests: HashMap::new() }
    }

    /// Another lock, over the same connection.
    pub(crate) fn rename(&mut self, name: impl Into<String>) {
        self.name = name.into();
    }

    pub(crate) fn key(&self, ending: &str) -> String {
        format!("{{{}}}{ending}", self.name)
    }

    /// Runs a script with these of the lock's keys; an error reply is an error.
    pub(crate) async fn run(
        &mut self,
        script: &'static Script,
        endings: &[&str],
        args: &[&str],
    ) -> Result<Value, String> {
        self.run_part(script.code, &script.digest, endings, args).await
    }

    /// Runs a script with these keys, which may be of several locks.
    pub(crate) async fn run_at(
        &mut self,
        script: &'static Script,
        mut keys: Vec<String>,
        args: &[&str],
    ) -> Result<Value, String> {
        keys.extend([self.key(":told"), self.clock()]);
        self.send(&format!("{CLOCK}{}", script.code), &script.digest, &keys, args).await
    }

    /// Runs a part of a script, which is told from others by its id.
    pub(crate) async fn run_part(
        &mut self,
        code: &str,
        id: &'static str,
        endings: &[&str],
        args: &[&str],
    ) -> Result<Value, String> {
        let mut keys: Vec<_> = endings.iter().map(|ending| self.key(ending)).collect();
        keys.extend([self.key(":told"), self.clock()]);
        self.send(&format!("{CLOCK}{code}"), id, &keys, args).await
    }

    fn clock(&self) -> String {
        format!("{}:{}", self.now / 1_000_000, self.now % 1_000_000)
    }

    async fn send(&mut self, text: &str, id: &'static str, keys: &[String], args: &[&str]) -> Result<Value, String> {
        if !self.digests.contains_key(id) {
            let digest = self.resp.command(&["SCRIPT", "LOAD", text]).await.unwrap().as_text().unwrap();
            self.digests.insert(id, digest);
        }
        let count = keys.len().to_string();
        let command = ["EVALSHA", &self.digests[id], &count].into_iter().chain(keys.iter().map(|key| &**key));
        let command: Vec<_> = command.chain(args.iter().copied()).collect();
        self.resp.command(&command).await.map_err(|error| error.to_string())
    }

    /// The content of the keys, and the ms until the lock's key ends.
    pub(crate) async fn look(&mut self) -> (Data, i64) {
        let keys = ["", ":q", ":w", ":tokens", ":x", ":told"].map(|ending| self.key(ending));
        let parts = self.send(LOOK, "look", &keys, &[]).await.unwrap().into_parts();
        let [held, ttl, queue, waiters, last_token, forced, told] = parts.try_into().unwrap();
        let held = texts(held);
        let held = match &*held {
            [text] => BTreeMap::from([(String::new(), text.clone())]),
            _ => pairs(&held),
        };
        let queue = texts(queue);
        let queue = queue.chunks(2).map(|pair| (pair[0].clone(), pair[1].parse::<f64>().unwrap() as u64)).collect();
        let [last_token, forced] = [last_token, forced].map(|value| value.as_text().unwrap());
        let data = Data { held, queue, waiters: pairs(&texts(waiters)), last_token, forced, told: texts(told) };
        (data, ttl.as_int().unwrap())
    }

    pub(crate) async fn command(&self, command: &[&str]) -> Value {
        self.resp.command(command).await.unwrap()
    }

    /// The processor time that the server's main thread has used, which runs the scripts. Whatever else the machine does
    /// meanwhile is not in it.
    pub(crate) async fn server_time(&self) -> Duration {
        let info = self.command(&["INFO", "cpu"]).await.as_text().unwrap();
        let part = |name: &str| {
            let line =
                info.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {info}"));
            Duration::from_secs_f64(line.parse().unwrap())
        };
        part("used_cpu_sys_main_thread:") + part("used_cpu_user_main_thread:")
    }

    /// Lets the lock's key end in so many ms of its clock, or ends it now.
    pub(crate) async fn ends_in(&self, ms: u64) {
        if ms == 0 {
            self.command(&["DEL", &self.key("")]).await;
        } else {
            self.command(&["PEXPIRE", &self.key(""), &ms.to_string()]).await;
        }
    }

    /// Makes another lock hold the same.
    pub(crate) async fn copy_to(&self, other: &Self) {
        for ending in ALL {
            self.command(&["DEL", &other.key(ending)]).await;
            self.command(&["COPY", &self.key(ending), &other.key(ending)]).await;
        }
    }
}

/// The fields of a reply, which is a list or, in a short way, one text with colons.
pub(crate) fn texts(value: Value) -> Vec<String> {
    if let Some(text) = value.as_text() {
        return text.split(':').map(str::to_owned).collect();
    }
    value.into_parts().iter().map(|part| part.as_text().unwrap_or_else(|| part.as_int().unwrap().to_string())).collect()
}

pub(crate) fn pairs(texts: &[String]) -> BTreeMap<String, String> {
    texts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}
