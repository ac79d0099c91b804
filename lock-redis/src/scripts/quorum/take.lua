-- One server's part of taking a lock of a quorum. Idempotent by the nonce.
--
-- The lock holds <nonce>:<round>:<µs of this server's clock>:<holder JSON>, with the lease as its TTL. The round is the
-- client's clock in µs when the request was sent: an undo frees no entry that was made, or made anew, after it.
--
-- KEYS[1] lock
-- ARGV[1] nonce  [2] round  [3] TTL ms  [4] holder JSON
-- Reply <nonce>+ if it is held under this nonce now, <nonce>- and the first 32 bytes of what it holds otherwise
local nonce, round = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local value = nonce .. ':' .. round .. ':' .. time[1] .. string.sub('00000' .. time[2], -6) .. ':' .. ARGV[4]
if redis.call('SET', KEYS[1], value, 'NX', 'PX', ARGV[3]) then return nonce .. '+' end
local held = redis.call('GET', KEYS[1])
if string.sub(held, 1, 32) ~= nonce then return nonce .. '-' .. string.sub(held, 1, 32) end
-- What an earlier round left, the undo of which is still on its way. Never shortened, never made older.
local left = math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[3]))
if tonumber(string.match(held, ':(%d+):', 33)) >= tonumber(round) then value = held end
redis.call('SET', KEYS[1], value, 'PX', left)
return nonce .. '+'
