-- The short way to release a lock for which nobody waits.
--
-- KEYS[1] lock, as in base.lua and one.lua
-- ARGV[1] nonce
-- Reply <nonce>+ if it is free now, <nonce>? if it is not held under this nonce or others wait: then nothing was
--      changed, and release.lua decides
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, 32) == ARGV[1] and string.sub(held, -1) ~= '!' then
  redis.call('DEL', KEYS[1])
  return ARGV[1] .. '+'
end
return ARGV[1] .. '?'
