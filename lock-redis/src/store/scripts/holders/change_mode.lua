-- Gives a grant another mode without a gap: a writer becomes a reader, some of several permits are released. Lets in
-- whom that made room for. Idempotent.
--
-- KEYS as in base.lua
-- ARGV[1] nonce  [2] client  [3] prefix of the push channels  [4] '' as in release.lua  [5] mode
-- Reply {nonce, 1, nonce, token, TTL ms, ...} as in release.lua, or {nonce, 0, ''} if it is not there
local now = now_us()
if not change(now, ARGV[1], ARGV[5]) then return { ARGV[1], 0, '' } end
return replied(ARGV[1], promote(now, ARGV[3], ARGV[2], ARGV[4]))
