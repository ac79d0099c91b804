-- One server's part of giving a lock of a quorum back, of undoing an acquisition, or of freeing a grant by force.
--
-- KEYS[1] lock, as in take.lua  [2] forced: <nonce>:<why>, until the lease would have ended
-- ARGV[1] nonce  [2] the last round to be freed  [3] why, if it is done by force: JSON; otherwise ''
-- Reply <nonce>+ if it was held under this nonce and is free now, <nonce>- and why it was freed by force otherwise
local nonce = ARGV[1]
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, 32) == nonce and tonumber(string.match(held, ':(%d+):', 33)) <= tonumber(ARGV[2]) then
  if ARGV[3] ~= '' then
    -- For the holder, which asks within its next renewal; without memory for it the lock is freed all the same.
    redis.pcall('SET', KEYS[2], nonce .. ':' .. ARGV[3], 'PX', math.max(redis.call('PTTL', KEYS[1]), 1000))
  end
  redis.call('DEL', KEYS[1])
  return nonce .. '+'
end
local forced = redis.call('GET', KEYS[2])
if forced and string.sub(forced, 1, 32) == nonce then return nonce .. '-' .. string.sub(forced, 34) end
return nonce .. '-'
