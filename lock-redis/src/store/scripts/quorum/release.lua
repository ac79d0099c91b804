-- One server's part of releasing a lock of a quorum, of undoing an acquisition, or of freeing a grant by force.
--
-- A release tells the client that has waited longest, and reserves the lock for it for a moment: so one client is woken,
-- and whoever asks without having waited does not overtake it. A key that foreign clients use too is not reserved.
--
-- KEYS[1] lock, as in acquire.lua  [2] forced: <nonce>:<why>, until the lease would have ended  [3] waiters, as in acquire.lua
-- ARGV[1] nonce  [2] the last round to be freed  [3] why, if it is done by force: JSON; otherwise ''
--     [4] what the channels of clients begin with, if a waiting one is to be told that the lock is free; otherwise ''
--     [5] '1' if the nonce is the id of a client that waits no longer  [6] after how many ms the told client asks
--     [7] '1' to reserve the lock for it
-- Reply <nonce>+ and how many other clients wait, if it was held under this nonce and is free now; <nonce>- and why it was
-- freed by force otherwise. In a batch also how many clients that are gone were passed over
local nonce, channels = ARGV[1], ARGV[4]

-- For how long the lock is reserved, ms: a push and a request take less.
local RESERVED = 50

-- Clients that are gone are forgotten on the way, so many at most; returns how many.
local function tell_next()
  for gone = 0, 63 do
    local client = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
    if not client then return gone end
    redis.call('ZREM', KEYS[3], client)
    local told = redis.pcall('PUBLISH', channels .. client, 'P' .. ARGV[6] .. ':' .. KEYS[1])
    if type(told) == 'number' and told > 0 then
      -- Without memory for it the lock is simply free.
      if ARGV[7] == '1' then redis.pcall('SET', KEYS[1], client .. ':0:0:', 'PX', RESERVED) end
      return gone
    end
  end
  return 64
end

if ARGV[5] == '1' then redis.call('ZREM', KEYS[3], nonce) end
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, 32) == nonce and tonumber(string.match(held, ':(%d+):', 33)) <= tonumber(ARGV[2]) then
  if ARGV[3] ~= '' then
    -- For the holder, which asks within its next renewal; without memory for it the lock is freed all the same.
    redis.pcall('SET', KEYS[2], nonce .. ':' .. ARGV[3], 'PX', math.max(redis.call('PTTL', KEYS[1]), 1000))
  end
  redis.call('DEL', KEYS[1])
  local waiting = redis.call('ZCARD', KEYS[3])
  return nonce .. '+' .. waiting, channels ~= '' and tell_next() or 0
end
local gone = channels ~= '' and not held and tell_next() or 0
local forced = redis.call('GET', KEYS[2])
if forced and string.sub(forced, 1, 32) == nonce then return nonce .. '-' .. string.sub(forced, 34), gone end
return nonce .. '-', gone
