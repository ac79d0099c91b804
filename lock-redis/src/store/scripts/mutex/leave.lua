-- Has a mutex that is held under one nonce end after a time, sooner or later than it would have, under another nonce: nothing that asks
-- under the first one touches it any more. Its token stays. Idempotent.
--
-- KEYS[1] lock, as in base.lua and one.lua, or in acquire.lua of a quorum
-- ARGV[1] nonce so far  [2] nonce from now on  [3] ms  [4] the key of what was forced, as in renew.lua
-- Reply {nonce so far, 1} or, if it is held under neither, {nonce so far, 0, why}
local held = redis.call('GET', KEYS[1])
local nonce = held and string.sub(held, 1, 32)
if nonce and (nonce == ARGV[1] or nonce == ARGV[2]) then
  -- Needs no memory, and what follows a write needs none to spare.
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('SET', KEYS[1], ARGV[2] .. string.sub(held, 33), 'PX', ARGV[3])
  return { ARGV[1], 1 }
end
local forced = redis.call('GET', ARGV[4])
if forced and string.sub(forced, 1, 32) == ARGV[1] then return { ARGV[1], 0, string.sub(forced, 34) } end
return { ARGV[1], 0, '' }
