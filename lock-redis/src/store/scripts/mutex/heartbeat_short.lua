-- The usual sign of life for many mutexes at once, in as few calls as can be: each is held by another grant than the waiter's, and
-- that waiter, the only one of this client, stands in its queue. Leaves everything else to heartbeat.lua, one lock after the other, and
-- changes nothing of it.
--
-- KEYS lock and waiters of each, as in base.lua
-- ARGV[1] client  [2] prefix of the push channels  [3] the number of this request  [4] '1' to hear of it by push too
--      [5...] two of each: the waiter's nonce, and the first 16 bytes of the holder's if the client knows that the lease of
--      this one does not end soon, or ''
-- Reply {number, ...}, for each lock 0 if that one holds it still; <ms until the holder's lease ends or -1>:<the first 16
--      bytes of its nonce> if it is another one, or its end is not known; the ms alone if it is none of ours; or -5 to leave it
--      to heartbeat.lua
local call, pcall, sub = redis.call, redis.pcall, string.sub
local client = ARGV[1]
local sign = '@' .. client
local time = call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now, alive, period = string.format('%.0f', ms), string.format('%.0f', ms + 3000), ms - ms % 8000
if ARGV[4] == '1' then call('PUBLISH', ARGV[2] .. client, 'E') end
local reply = { ARGV[3] }
for i = 1, (#ARGV - 4) / 2 do
  local lock, waiters, holder = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i + 4]
  local held = pcall('GET', lock)
  local usual = type(held) == 'string'
  local same = usual and holder ~= '' and sub(held, 1, 16) == holder
  local known
  -- A waiter that holds the lock itself has lost the news of that. Another grant of its client is a hold like any other's.
  if same or (usual and sub(held, 1, 32) ~= ARGV[2 * i + 3]) then
    -- Who leaves the queue leaves the waiters too.
    known = pcall('HMGET', waiters, sign, '#seen', ARGV[2 * i + 3])
    -- As queue.lua has it: the server did not stand still, and its clock was not set back.
    usual = known[1] and known[2] and known[3] and math.abs(ms - known[2]) <= 1500
    -- Both last for 30 s from a sign, and are made to last again every 8 s. The queue's key is not declared, which would cost
    -- time too. After a stall the last sign may lie ahead (queue.lua), and would hide that the 8 s are over.
    if usual and (known[2] - period < 0 or known[2] - ms > 0) then
      usual = call('PEXPIRE', sub(waiters, 1, -2) .. 'q', 30000) == 1
      call('PEXPIRE', waiters, 30000)
    end
  else
    usual = false
  end
  -- Without memory this is refused; heartbeat.lua begins with a write that needs none.
  usual = usual and type(pcall('HSET', waiters, sign, alive, '#seen', now)) == 'number'
  if not usual then
    reply[i + 1] = -5
  elseif same then
    reply[i + 1] = 0
  else
    local left, nonce = call('PTTL', lock), string.match(held, '^%x+')
    reply[i + 1] = nonce and #nonce == 32 and left .. ':' .. sub(nonce, 1, 16) or left
  end
end
return reply
