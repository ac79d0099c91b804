-- Leaves nothing of an attempt: neither its place in the queue nor its grant.
--
-- KEYS and ARGV as in release.lua  [5] '1' to let in the next ones in nobody's name: waiters of the same client are told by push, too
-- Reply {nonce, 1, nonce, token, TTL ms, ...} as in release.lua
local now = now_us()
leave(ARGV[1] .. ':' .. ARGV[2])
remove(now, ARGV[1])
return replied(ARGV[1], promote(now, ARGV[3], ARGV[5] == '1' and '' or ARGV[2], ARGV[4]))
