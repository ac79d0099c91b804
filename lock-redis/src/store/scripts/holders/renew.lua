-- As mutex/renew.lua, for the other kinds.
--
-- KEYS[1] lock, as in base.lua and many.lua
-- ARGV[1] nonce  [2] TTL ms  [3] the key of what was forced. It is not declared: while a slot of a cluster is on its way,
--      requests with several keys are refused, and a lease must be renewed then too.
-- Reply {nonce, 1} or {nonce, 0, why}
local record = redis.call('HGET', KEYS[1], ARGV[1])
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = record and tonumber(string.match(record, '^%d+')) or 0
if ends > ms then
  -- The key's own TTL comes first: it needs no memory, and what follows a write needs none to spare.
  redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
  if ends < ms + ARGV[2] then
    redis.call('HSET', KEYS[1], ARGV[1], (string.gsub(record, '^%d+', string.format('%.0f', ms + ARGV[2]))))
  end
  return { ARGV[1], 1 }
end
local forced = redis.call('GET', ARGV[3])
if forced and string.sub(forced, 1, 32) == ARGV[1] then return { ARGV[1], 0, string.sub(forced, 34) } end
return { ARGV[1], 0, '' }
