-- Who holds the lock and who waits for it.
--
-- KEYS as in queue.lua
-- Reply {now µs, what the lock holds or '', ms until it ends, {member, ticket, ...}, {field, value, ...}}
return {
  text(now_us()), redis.call('GET', LOCK) or '', redis.call('PTTL', LOCK),
  redis.call('ZRANGE', QUEUE, 0, -1, 'WITHSCORES'), redis.call('HGETALL', WAITERS),
}
