-- As renew.lua, for a mutex that is shared with Redisson.
--
-- KEYS, ARGV and reply as in renew.lua
local held = redis.call('HGET', KEYS[1], '#')
if held and string.sub(held, 1, 32) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
  return { ARGV[1], 1 }
end
local forced = redis.call('GET', ARGV[3])
if forced and string.sub(forced, 1, 32) == ARGV[1] then return { ARGV[1], 0, string.sub(forced, 34) } end
return { ARGV[1], 0, '' }
