-- Takes the lock, or takes a place in its queue. Idempotent by the nonce; for a holder it is the claim.
--
-- KEYS as in queue.lua
-- ARGV[1] nonce  [2] client  [3] TTL ms  [4] holder JSON  [5] '1' to wait in the queue  [6] ticket of an earlier place,
--      '0' if it was asked for before without an answer, or ''  [7] prefix of the push channels  [8] '1' if the key is shared with foreign clients  [9] claim time ms: how
--      long a lock that is handed over is kept for this waiter until it has claimed it
-- Reply {nonce, 1, token, ms until the grant ends} or {nonce, 0, ms until the holder's lease ends, ticket, whether the
--      client was known to wait, last token}
local nonce, client, ttl, card = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local me = nonce .. ':' .. client
local held = redis.call('GET', LOCK)

if held and string.sub(held, 1, 32) == nonce then
  -- Never shortens: this may be a late copy of a request whose lease was extended since.
  if redis.call('PTTL', LOCK) < tonumber(ttl) then redis.call('PEXPIRE', LOCK, ttl) end
  return { nonce, 1, string.match(held, '(%d+)!?$'), ttl }
end
if not held and redis.call('EXISTS', QUEUE) == 0 then
  return { nonce, 1, grant(me, card, now_us(), ttl), ttl }
end

local now = now_us()
if ARGV[5] ~= '1' then
  if not held then
    promote(now, ARGV[7], '', ARGV[8])
    -- Everybody in the queue was dead.
    local free = redis.call('EXISTS', LOCK, QUEUE) == 0
    if free then return { nonce, 1, grant(me, card, now, ttl), ttl } end
  end
  return { nonce, 0, redis.call('PTTL', LOCK), '0', 1, '0' }
end

local ticket = ARGV[6]
if ticket == '' or ticket == '0' then
  ticket = text(math.max(now, tonumber(redis.call('HGET', WAITERS, '#last') or 0) + 1))
  redis.call('HSET', WAITERS, '#last', ticket)
end
redis.call('ZADD', QUEUE, 'NX', ticket, me)
redis.call('HSET', WAITERS, nonce, ARGV[9] .. card)
mark(held)
local known = sign(math.floor(now / 1000), client)
if not held then
  local first, token, claim = promote(now, ARGV[7], client, ARGV[8])
  if first == me then return { nonce, 1, token, claim } end
  if first and string.sub(first, 34, 49) == client then
    redis.call('PUBLISH', ARGV[7] .. client, 'G' .. string.sub(first, 1, 32) .. ':' .. token .. ':' .. claim)
  end
end
return { nonce, 0, redis.call('PTTL', LOCK), redis.call('ZSCORE', QUEUE, me) or ticket, known, string.match(redis.call('GET', FENCE) or '0', '^%d+') }
