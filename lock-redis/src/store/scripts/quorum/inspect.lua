-- What one server of a quorum knows of a lock.
--
-- KEYS[1] lock, as in acquire.lua
-- Reply {the lock's key, now µs, what it holds or '', ms until it ends, as PTTL says}
local time = redis.call('TIME')
return {
  KEYS[1], time[1] .. string.sub('00000' .. time[2], -6), redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]),
}
