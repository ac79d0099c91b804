-- Extends the lease if the lock is held under this nonce; never brings back what is gone, and never shortens: a renewal
-- may overtake, or be overtaken by, an extension by hand.
--
-- KEYS[1] lock, as in base.lua and one.lua
-- ARGV[1] nonce  [2] TTL ms  [3] the key of what was forced. It is not declared: while a slot of a cluster is on its way,
--      requests with several keys are refused, and a lease must be renewed then too.
-- Reply {nonce, 1} or {nonce, 0, why}
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, 32) == ARGV[1] then
  -- Written also where it changes nothing: who waits for replicas waits for this write.
  redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
  return { ARGV[1], 1 }
end
local forced = redis.call('GET', ARGV[3])
if forced and string.sub(forced, 1, 32) == ARGV[1] then return { ARGV[1], 0, string.sub(forced, 34) } end
return { ARGV[1], 0, '' }
