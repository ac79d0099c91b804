-- Gives a grant back. Comes before queue.lua, whose functions cost time to define: often nobody waits.
--
-- KEYS, ARGV and reply as in release.lua
local now = now_us()
if not remove(now, ARGV[1]) then
  local forced = redis.call('GET', FORCED) or ''
  return { ARGV[1], 0, string.sub(forced, 1, 32) == ARGV[1] and string.sub(forced, 34) or '' }
end
if redis.call('EXISTS', QUEUE) == 0 then return { ARGV[1], 1 } end

