-- One server's part of putting a lock of a quorum that is held under one nonce under another one; the lease lasts for the TTL at least.
-- Idempotent.
--
-- KEYS[1] lock, as in acquire.lua
-- ARGV[1] nonce from now on  [2] round  [3] TTL ms  [4] holder JSON  [5] nonce so far
-- Reply <nonce>+ if it is held under the new nonce now; <nonce>-: if it is held under neither
local held = redis.call('GET', KEYS[1])
local nonce = held and string.sub(held, 1, 32)
if nonce ~= ARGV[1] and nonce ~= ARGV[5] then return ARGV[1] .. '-:' end
local since = string.match(held, ':%d+:(%d+):', 33)
local ttl = math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[3]))
redis.call('SET', KEYS[1], ARGV[1] .. ':' .. ARGV[2] .. ':' .. since .. ':' .. ARGV[4], 'PX', string.format('%.0f', ttl))
return ARGV[1] .. '+'
