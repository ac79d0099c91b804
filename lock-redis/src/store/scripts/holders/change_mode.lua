-- Gives a grant another mode without a gap: a writer becomes a reader, some of several permits are released. Lets in
-- whom that made room for. Idempotent.
--
-- KEYS as in base.lua
-- ARGV[1] nonce  [2] client  [3] prefix of the push channels  [4] '' as in release.lua  [5] mode
-- Reply {nonce, 1, nonce, token, TTL ms, ...} or {nonce, 0, why} as in release.lua
local now = now_us()
if not change(now, ARGV[1], ARGV[5]) then
  local forced = redis.call('GET', FORCED) or ''
  return { ARGV[1], 0, string.sub(forced, 1, 32) == ARGV[1] and string.sub(forced, 34) or '' }
end
return replied(ARGV[1], promote(now, ARGV[3], ARGV[2], ARGV[4]))
