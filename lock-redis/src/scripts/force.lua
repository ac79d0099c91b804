-- Frees exactly one grant, tells its holder, and hands the lock to the next waiter.
--
-- KEYS as in queue.lua
-- ARGV[1] nonce  [2] prefix of the push channels  [3] '1' if the key is shared with foreign clients  [4] why: JSON
-- Reply {nonce, 1} or {nonce, 0}
local held = redis.call('GET', LOCK)
if not held or string.sub(held, 1, 32) ~= ARGV[1] then return { ARGV[1], 0 } end
-- For a holder that misses the push; it asks within its next renewal, or not at all.
redis.pcall('SET', FORCED, ARGV[1] .. ':' .. ARGV[4], 'PX', math.max(redis.call('PTTL', LOCK), 1000))
redis.call('PUBLISH', ARGV[2] .. string.sub(held, 34, 49), 'F' .. ARGV[1] .. ':' .. ARGV[4])
free(ARGV[1], ARGV[2], '', ARGV[3])
return { ARGV[1], 1 }
