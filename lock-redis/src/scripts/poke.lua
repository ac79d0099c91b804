-- One client's sign of life for all its waiters on one lock. Hands the lock over if nobody holds it (its holder
-- crashed, or is a foreign client that tells nobody), and says what pushes may have been lost.
--
-- KEYS as in queue.lua
-- ARGV[1] client  [2] prefix of the push channels  [3] '1' if the key is shared with foreign clients
--      [4...] nonces of the client's first waiters
-- Reply {client, whether it was known to wait, ms until the holder's lease ends or -1 or -2, the holder's nonce if it
--      is of this client or '', its token, a string with 1 for each nonce that is in the queue and 0 for the others}
local client = ARGV[1]
local now = now_us()
-- Comes back on the subscription connection: the client knows then that pushes arrive.
redis.call('PUBLISH', ARGV[2] .. client, 'E')
local known = redis.call('HEXISTS', WAITERS, '@' .. client)
if known == 1 then sign(math.floor(now / 1000), client) end
local held = redis.call('GET', LOCK)
if not held then
  promote(now, ARGV[2], client, ARGV[3])
  held = redis.call('GET', LOCK) or ''
end

-- Clients that have gone leave a sign behind; with a queue that never empties somebody has to clear up.
if redis.call('HLEN', WAITERS) > 2 * redis.call('ZCARD', QUEUE) + 64 then
  local all = redis.call('HGETALL', WAITERS)
  for i = 1, #all, 2 do
    local dead = string.sub(all[i], 1, 1) == '@' and tonumber(all[i + 1]) < now / 1000
    if dead then redis.call('HDEL', WAITERS, all[i]) end
  end
end

local queued = {}
for i = 4, #ARGV do
  queued[i - 3] = redis.call('ZSCORE', QUEUE, ARGV[i] .. ':' .. client) and '1' or '0'
end
local nonce, token = '', '0'
if string.sub(held, 34, 49) == client then
  nonce, token = string.sub(held, 1, 32), string.match(held, '(%d+)!?$')
end
return { client, known, redis.call('PTTL', LOCK), nonce, token, table.concat(queued) }
