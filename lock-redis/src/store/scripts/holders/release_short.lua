-- The usual way to release a grant for whose room nobody waits, in as few calls as can be. Comes before base.lua and
-- many.lua, whose functions cost time to define, and leaves everything else to release.lua.
--
-- KEYS, ARGV and reply as in release.lua
local record, next, used = unpack(redis.call('HMGET', KEYS[1], ARGV[1], '#next', '#used'))
-- Something else in the queue's place is nobody who waits; any other error is told, and nothing is done.
local first = record and next and redis.pcall('ZRANGE', KEYS[2], 0, 1)
if first and first.err and not string.find(first.err, 'WRONGTYPE', 1, true) then return first end
if first and not first[1] then
  local time = redis.call('TIME')
  local ms = time[1] * 1000 + math.floor(time[2] / 1000)
  -- No grant has ended, this one included.
  if tonumber(next) > ms then
    local left = used - (string.match(record, '^%d+:%d+:%x+:P(%d+)/') or 1)
    if left <= 0 then
      redis.call('DEL', KEYS[1])
    else
      redis.call('HDEL', KEYS[1], ARGV[1])
      redis.call('HSET', KEYS[1], '#used', string.format('%.0f', left))
    end
    return { ARGV[1], 1 }
  end
end

