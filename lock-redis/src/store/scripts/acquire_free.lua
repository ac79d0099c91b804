-- Takes a lock that can be had without waiting. Idempotent by the nonce; for a holder it is the claim. Everything that
-- needs the queue is left to acquire.lua, whose functions cost time to define.
--
-- KEYS, ARGV and reply as in acquire.lua
local now = now_us()
local nonce, client, ttl, info, mode = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[9]
local me = nonce .. ':' .. client

local token = mine(now, nonce)
if token then
  extend(now, nonce, ttl)
  return { nonce, 1, token, ttl }
end
local queued = redis.call('EXISTS', QUEUE) == 1
local wrong = misfit(now, mode, queued)
-- Where grants that have ended may be counted still, the long way tells.
if wrong and not queued and not unfinished() then return wrong end
if not wrong and not queued and admits(now, mode) then
  return { nonce, 1, grant(now, me, mode, info, ttl), ttl }
end

