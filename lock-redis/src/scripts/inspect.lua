-- Who holds the lock and who waits for it.
--
-- KEYS as in base.lua
-- Reply {the lock's key, now µs, what holds it, {member, ticket, ...}, {field, value, ...}}; of a mutex the first is {value or '', ms until
--      it ends}, of the other kinds {field, value, ...} as in many.lua
return {
  LOCK, text(now_us()), holders(), redis.call('ZRANGE', QUEUE, 0, -1, 'WITHSCORES'), redis.call('HGETALL', WAITERS),
}
