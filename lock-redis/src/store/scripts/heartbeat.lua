-- One client's sign of life for all its waiters on one lock. Hands the lock over if there is room (a holder crashed, or is
-- a foreign client that tells nobody), and says what pushes may have been lost.
--
-- KEYS as in base.lua
-- ARGV[1] client  [2] prefix of the push channels  [3] '1' if the key is shared with foreign clients
--      [4] the heartbeat's number, another one for each heartbeat of a client  [5] '1' to hear of it by push too
--      [6...] nonces of the client's first waiters
-- Reply {number, whether the client was known to wait, when to ask again as pause() says it, a string with 1
--      for each nonce that is in the queue and 0 for the others, the last token, nonce, token, ms left, ...} with what the
--      client holds: of a mutex the one grant, of other kinds those that were asked for
local client = ARGV[1]
local now = now_us()
-- Comes back on the subscription connection: the client knows then that pushes arrive.
if ARGV[5] == '1' then redis.call('PUBLISH', ARGV[2] .. client, 'E') end
local known = redis.call('HEXISTS', WAITERS, '@' .. client)
if known == 1 then sign(math.floor(now / 1000), client) end
local _, more, left = promote(now, ARGV[2], '', ARGV[3])
-- A client that nobody knows has given no sign, which would have noted that the server stood still.
if known == 1 then
  if not more then more = drop_dead(math.floor(now / 1000), left) end
  sweep(math.floor(now / 1000))
end

local queued, nonces, owner = {}, {}, inside(now)
for i = 6, #ARGV do
  local member = ARGV[i] .. ':' .. client
  nonces[i - 5] = ARGV[i]
  queued[i - 5] = redis.call('ZSCORE', QUEUE, member) and '1' or '0'
  if owner and queued[i - 5] == '1' then
    -- One that came before its owner was inside need not wait for its turn.
    local ttl, mode, info = string.match(redis.call('HGET', WAITERS, ARGV[i]) or '', '^(%d+)([^{]*)(.*)$')
    if mode == owner and pcall(grant, now, member, mode, info, claim_of(ttl)) then
      leave(member)
      queued[i - 5] = '0'
    end
  end
end
return {
  ARGV[4], known, pause(now, client, ARGV[3], more), table.concat(queued), last_token(), unpack(held_by(now, client, nonces)),
}
