-- Stamps the record beside a mutex with a token and, if there are any, writes its data; only while the mutex is held under
-- this nonce. Idempotent.
--
-- KEYS[1] lock, as in base.lua and one.lua  [2] record: <token 16>:<token 16>:<data>, the latest holder's token and that under
--      which the data was written (0 for none)
-- ARGV[1] nonce  [2] its token, 16 digits  [3] retention ms  [4] '1' to write data  [5] the data
-- Reply {nonce, 1, record} or, if the grant is gone or the record has a newer token, {nonce, 0}
local nonce, token = ARGV[1], ARGV[2]
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 1, 32) ~= nonce then return { nonce, 0 } end
local stored, keep = redis.call('GET', KEYS[2]), tonumber(ARGV[3])
if stored then
  if not string.find(stored, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d:%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d:') then
    return redis.error_reply('LOCKRECORD something else is in its place')
  end
  if string.sub(stored, 1, 16) > token then return { nonce, 0 } end
  keep = math.max(keep, redis.call('PTTL', KEYS[2]))
end
local rest = stored and string.sub(stored, 18) or '0000000000000000:'
if ARGV[4] == '1' then rest = token .. ':' .. ARGV[5] end
local record = token .. ':' .. rest
redis.call('SET', KEYS[2], record, 'PX', string.format('%.0f', keep))
return { nonce, 1, record }
