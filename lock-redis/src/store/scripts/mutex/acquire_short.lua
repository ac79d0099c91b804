-- The short way to a free lock for which nobody waits. Idempotent by the nonce. Every command here is on the path of
-- every uncontended acquisition, so there are as few as can be; base.lua and one.lua tell what the keys hold.
--
-- KEYS[1] lock  [2] queue  [3] tokens
-- ARGV[1] <nonce>:<client>:<holder JSON>:  [2] TTL ms  [3] with several locks in one script the token, which is noted already
-- Reply <nonce>+<token> if it is held under this nonce now, <nonce>- if somebody else holds it, <nonce>? if it is free
--      but others wait: then acquire.lua decides
local nonce, token = string.sub(ARGV[1], 1, 32), ARGV[3]
local queued = redis.call('EXISTS', KEYS[2]) == 1
if not token and not queued then
  local time = redis.call('TIME')
  token = time[1] .. string.sub('00000' .. time[2], -6)
end
if not queued and redis.call('SET', KEYS[1], ARGV[1] .. token, 'NX', 'PX', ARGV[2]) then
  local last = not ARGV[3] and redis.pcall('SET', KEYS[3], token, 'KEEPTTL', 'GET')
  if last and #last == #token and last < token then
    -- The memory of the last token is made to last again every 1,000 s.
    if string.sub(last, 1, 7) ~= string.sub(token, 1, 7) then redis.call('PEXPIRE', KEYS[3], '7200000') end
    return nonce .. '+' .. token
  end
  if not last then
    if not ARGV[3] then redis.call('PEXPIRE', KEYS[3], '7200000') end
    return nonce .. '+' .. token
  end
  if type(last) == 'table' then
    -- Foreign data in the counter's place: nothing is taken.
    redis.call('DEL', KEYS[1])
    return last
  end
  -- The server's clock stands still or was set back: one more than the last.
  local now = tonumber(token)
  token = string.format('%.0f', math.max((tonumber(string.match(last, '^%d+')) or 0) + 1, now))
  redis.call('SET', KEYS[3], token, 'PX', string.format('%.0f', math.ceil((tonumber(token) - now) / 1000) + 7200000))
  redis.call('SET', KEYS[1], ARGV[1] .. token, 'PX', ARGV[2])
  return nonce .. '+' .. token
end
local held = redis.call('GET', KEYS[1])
if not held then return nonce .. '?' end
if string.sub(held, 1, 32) == nonce then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  return nonce .. '+' .. string.match(held, '(%d+)!?$', -24)
end
return nonce .. '-'
