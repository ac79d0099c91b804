-- One server's part of acquiring a lock of a quorum. Idempotent by the nonce.
--
-- The lock holds <nonce>:<round>:<µs of this server's clock>:<holder JSON>, with the lease as its TTL. The round is the
-- client's clock in µs when the request was sent: an undo frees no entry that was made, or made anew, after it. After a
-- release the lock may be reserved for a waiting client for a moment: it then holds <client>:0:0: and nothing else.
--
-- KEYS[1] lock  [2] waiters: the clients that wait, by the µs since when (a sorted set)
-- ARGV[1] nonce  [2] round  [3] TTL ms  [4] holder JSON  [5] the client that waits for the lock, or '' for a try
--     [6] µs for which it has been waiting
-- Reply <nonce>+ if it is held under this nonce now; otherwise <nonce>-<ms until what it holds ends>: and the first 32 bytes
-- of what it holds
local nonce, round, client = ARGV[1], ARGV[2], ARGV[5]
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
local value = nonce .. ':' .. round .. ':' .. now .. ':' .. ARGV[4]

local function granted()
  if client ~= '' and ARGV[6] ~= '0' then redis.call('ZREM', KEYS[2], client) end
  return nonce .. '+'
end

if redis.call('SET', KEYS[1], value, 'NX', 'PX', ARGV[3]) then return granted() end
local held = redis.call('GET', KEYS[1])
local holder, ends_in = string.sub(held, 1, 32), redis.call('PTTL', KEYS[1])
if client ~= '' and holder == client then
  redis.call('SET', KEYS[1], value, 'PX', ARGV[3])
  return granted()
end
if holder ~= nonce then
  if client ~= '' then
    -- By the time for which it has waited: so it keeps its place although it was told in vain.
    redis.call('ZADD', KEYS[2], string.format('%.0f', tonumber(now) - tonumber(ARGV[6])), client)
    redis.call('PEXPIRE', KEYS[2], 3000)
  end
  return nonce .. '-' .. ends_in .. ':' .. holder
end
-- What an earlier round left, the undo of which is still on its way. Never shortened, never made older.
if tonumber(string.match(held, ':(%d+):', 33)) >= tonumber(round) then value = held end
redis.call('SET', KEYS[1], value, 'PX', math.max(ends_in, tonumber(ARGV[3])))
return granted()
