-- Takes the lock, or takes a place in its queue. Comes after acquire_free.lua.
--
-- KEYS as in base.lua
-- ARGV[1] nonce  [2] client  [3] TTL ms  [4] holder JSON  [5] '1' to wait in the queue  [6] ticket of an earlier place,
--      '0' if it was asked for before without an answer, or ''  [7] prefix of the push channels  [8] '1' if the key is
--      shared with foreign clients  [9] mode, as in many.lua; '' for a mutex
-- Reply {nonce, 1, token, ms until the grant ends} or {nonce, 0, ms until a holder's lease ends or as in heartbeat.lua, ticket, whether the
--      client was known to wait, last token}; the ticket is 0 if it has no place
if wrong then
  -- Those who wait for something else may all be dead.
  local _, more = promote(now, ARGV[7], '', ARGV[8])
  wrong = misfit(now, mode, false)
  -- The grants that are counted may all have ended.
  if wrong and unfinished() then return { nonce, 0, MORE, '0', 1, '0' } end
  if not wrong and redis.call('EXISTS', QUEUE) == 1 then
    wrong = misfit(now, mode, true)
    -- Those who are left may be dead as well.
    if wrong and more then return { nonce, 0, MORE, '0', 1, '0' } end
  end
  if wrong then return wrong end
end
if passes(now, mode) then
  -- A place that it has in the queue would bring it a second grant, and with that an earlier end.
  leave(me)
  return { nonce, 1, grant(now, me, mode, info, ttl), ttl }
end

if ARGV[5] ~= '1' then
  -- If everybody in the queue was dead, it is this one's turn.
  local _, more = promote(now, ARGV[7], '', ARGV[8])
  if redis.call('EXISTS', QUEUE) == 0 and admits(now, mode) then
    return { nonce, 1, grant(now, me, mode, info, ttl), ttl }
  end
  return { nonce, 0, (more or unfinished()) and MORE or ends_in(now), '0', 1, '0' }
end

local ticket, last = ARGV[6], tonumber(redis.call('HGET', WAITERS, '#last') or 0)
if ticket == '' or ticket == '0' then ticket = text(math.max(now, last + 1)) end
-- A place from before a restart that lost the data may lie ahead of a clock that is behind: newcomers come after it, too.
if tonumber(ticket) > last then redis.call('HSET', WAITERS, '#last', ticket) end
redis.call('ZADD', QUEUE, 'NX', ticket, me)
redis.call('HSET', WAITERS, nonce, ttl .. mode .. info)
mark(mode)
local known = sign(math.floor(now / 1000), client)
local _, more, left = promote(now, ARGV[7], '', ARGV[8])
-- Clients that come and die while the lock stays held: each looks for several dead ones, so that they do not become ever more.
if known == 0 and not more then drop_dead(math.floor(now / 1000), left) end
token = mine(now, nonce)
if token then return { nonce, 1, token, claim_of(ttl) } end
return { nonce, 0, pause(now, client, ARGV[8], more), redis.call('ZSCORE', QUEUE, me) or ticket, known, last_token() }
