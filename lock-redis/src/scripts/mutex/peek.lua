-- The usual sign of life for many mutexes at once, in as few calls as can be: each is held by somebody else, and one waiter
-- of this client stands in its queue. Leaves everything else to poke.lua, one lock after the other, and changes nothing of it.
--
-- KEYS lock, queue and waiters of each, as in base.lua
-- ARGV[1] client  [2] prefix of the push channels  [3] the number of this request  [4] '1' to hear of it by push too
--      [5...] the waiter's nonce of each
-- Reply {number, ms until the holder's lease ends or -1, or -5 to leave it to poke.lua, ...}
local client = ARGV[1]
local sign = '@' .. client
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now, alive = string.format('%.0f', ms), string.format('%.0f', ms + 3000)
if ARGV[4] == '1' then redis.call('PUBLISH', ARGV[2] .. client, 'E') end
local reply = { ARGV[3] }
for i = 1, #KEYS / 3 do
  local lock, queue, waiters = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local held = redis.pcall('GET', lock)
  local usual = type(held) == 'string' and string.sub(held, 34, 49) ~= client
  if usual then
    local known = redis.pcall('HMGET', waiters, sign, '#seen')
    -- As queue.lua has it: the server did not stand still, and its clock was not set back.
    usual = known[1] and known[2] and math.abs(ms - known[2]) <= 1500
    usual = usual and type(redis.pcall('ZSCORE', queue, ARGV[i + 4] .. ':' .. client)) == 'string'
  end
  if usual then
    redis.call('HSET', waiters, sign, alive, '#seen', now)
    redis.call('PEXPIRE', queue, 30000)
    redis.call('PEXPIRE', waiters, 30000)
    reply[i + 1] = redis.call('PTTL', lock)
  else
    reply[i + 1] = -5
  end
end
return reply
