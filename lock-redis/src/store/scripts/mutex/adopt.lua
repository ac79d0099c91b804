-- Puts a mutex that is held under one nonce under another one, with its token; the lease lasts for the TTL at least. Idempotent.
--
-- KEYS[1] lock, as in base.lua and one.lua
-- ARGV[1] nonce from now on  [2] client  [3] holder JSON  [4] TTL ms  [5] nonce so far
-- Reply {nonce, 1, token} or, if it is held under neither, {nonce, 0}
local nonce, held = ARGV[1], redis.call('GET', KEYS[1])
local now = held and string.sub(held, 1, 32)
if now ~= nonce and now ~= ARGV[5] then return { nonce, 0 } end
local token, mark = string.match(held, '(%d+)(!?)$', -24)
local ttl = math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[4]))
redis.call('SET', KEYS[1], nonce .. ':' .. ARGV[2] .. ':' .. ARGV[3] .. ':' .. token .. mark, 'PX', string.format('%.0f', ttl))
return { nonce, 1, token }
