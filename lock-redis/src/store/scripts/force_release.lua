-- Frees exactly one grant, tells its holder, and lets in whom that made room for.
--
-- KEYS as in base.lua
-- ARGV[1] nonce  [2] prefix of the push channels  [3] '1' if the key is shared with foreign clients  [4] why: JSON
-- Reply {nonce, 1}, {nonce, 2} as in release.lua, or {nonce, 0}
local now = now_us()
local client = client_of(now, ARGV[1])
if not client then return { ARGV[1], 0 } end
-- For a holder that misses the push; it asks within its next renewal, or not at all.
redis.pcall('SET', FORCED, ARGV[1] .. ':' .. ARGV[4], 'PX', math.max(redis.call('PTTL', LOCK), 1000))
redis.call('PUBLISH', ARGV[2] .. client, 'F' .. ARGV[1] .. ':' .. ARGV[4])
remove(now, ARGV[1])
return replied(ARGV[1], promote(now, ARGV[2], '', ARGV[3]))
