-- As leave.lua, for a mutex that is shared with Redisson, whose waiters are told: they sleep for as long as they saw it held.
--
-- KEYS, ARGV and reply as in leave.lua; the lock as in redisson.lua
local held = redis.call('HGET', KEYS[1], '#')
local nonce = held and string.sub(held, 1, 32)
if nonce and (nonce == ARGV[1] or nonce == ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('HDEL', KEYS[1], string.sub(held, 1, 49))
  held = ARGV[2] .. string.sub(held, 33)
  redis.call('HSET', KEYS[1], string.sub(held, 1, 49), 1, '#', held)
  -- Without the right to tell them it is left all the same.
  local slot = string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}'
  redis.pcall('PUBLISH', 'redisson_lock__channel:' .. slot, '0')
  return { ARGV[1], 1 }
end
local forced = redis.call('GET', ARGV[4])
if forced and string.sub(forced, 1, 32) == ARGV[1] then return { ARGV[1], 0, string.sub(forced, 34) } end
return { ARGV[1], 0, '' }
