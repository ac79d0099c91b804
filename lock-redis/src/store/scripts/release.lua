-- Releases a grant. Comes before queue.lua, whose functions cost time to define: often nobody waits.
--
-- KEYS as in base.lua
-- ARGV[1] nonce  [2] client  [3] prefix of the push channels  [4] '1' if the key is shared with foreign clients
-- Reply {nonce, 1, nonce, token, TTL ms, ...} with those of the next holders that are of the same client, 2 instead of 1
--      if there is more to do than one run may: then the client goes on with a heartbeat;
--      {nonce, 0, why} if it was not held, with the text of a release by force, or ''
local now = now_us()
if not remove(now, ARGV[1]) then
  local forced = redis.call('GET', FORCED) or ''
  return { ARGV[1], 0, string.sub(forced, 1, 32) == ARGV[1] and string.sub(forced, 34) or '' }
end
if redis.call('EXISTS', QUEUE) == 0 then return { ARGV[1], 1 } end

