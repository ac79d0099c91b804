//! A hash that carries its fence, in Redis.

use lock_core::FencingToken;
use lock_testkit::testing::installed;
use lock_testkit_servers::redis::RedisServer;
use lock_testkit_servers::resp::Value;

use crate::{Resource, SharedResource, refuses_the_late_writer, serves_readers_together_and_refuses_who_is_late};

const READ: &str = "
if tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') > tonumber(ARGV[1]) then return false end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
return redis.call('HGET', KEYS[1], 'state')
";
const WRITE: &str = "
if tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') > tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'state', ARGV[2])
return 1
";

const SHARED_READ: &str = "
local fence, read_fence = unpack(redis.call('HMGET', KEYS[1], 'fence', 'read_fence'))
if tonumber(fence or '0') > tonumber(ARGV[1]) then return false end
if tonumber(read_fence or '0') < tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'read_fence', ARGV[1]) end
return redis.call('HGET', KEYS[1], 'state')
";
const SHARED_WRITE: &str = "
local fence, read_fence = unpack(redis.call('HMGET', KEYS[1], 'fence', 'read_fence'))
if math.max(tonumber(fence or '0'), tonumber(read_fence or '0')) > tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'state', ARGV[2])
return 1
";

/// The order 42.
struct Hash<'a>(&'a RedisServer);

impl Hash<'_> {
    async fn run(&self, script: &str, arguments: &[&str]) -> Value {
        let command = [&["EVAL", script, "1", "order:42"], arguments].concat();
        self.0.client().unwrap().command(&command).await.unwrap()
    }
}

impl Resource for Hash<'_> {
    async fn read(&mut self, token: FencingToken) -> Option<String> {
        self.run(READ, &[&token.as_u64().to_string()]).await.as_text()
    }

    async fn write(&mut self, token: FencingToken, state: &str) -> bool {
        self.run(WRITE, &[&token.as_u64().to_string(), state]).await.as_int() == Some(1)
    }
}

/// A hash behind a read-write lock.
struct SharedHash<'a>(Hash<'a>);

impl SharedResource for SharedHash<'_> {
    async fn read(&mut self, token: FencingToken) -> Option<String> {
        self.0.run(SHARED_READ, &[&token.as_u64().to_string()]).await.as_text()
    }

    async fn write(&mut self, token: FencingToken, state: &str) -> bool {
        self.0.run(SHARED_WRITE, &[&token.as_u64().to_string(), state]).await.as_int() == Some(1)
    }
}

#[tokio::test]
async fn a_hash_in_redis_serves_readers_together_and_refuses_who_is_late() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    server.client().unwrap().command(&["HSET", "order:42", "state", "new"]).await.unwrap();
    serves_readers_together_and_refuses_who_is_late(SharedHash(Hash(&server))).await;
}

#[tokio::test]
async fn a_hash_in_redis_refuses_the_late_writer() {
    // Another one than has the lock.
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    server.client().unwrap().command(&["HSET", "order:42", "state", "new"]).await.unwrap();
    refuses_the_late_writer(async || Hash(&server)).await;
}
