-- The usual way into a queue, in as few calls as can be: the lock leaves no room at all, and others of this client wait already. Comes
-- after acquire_short.lua, which has looked at the lock, and before base.lua, many.lua and queue.lua, whose functions cost time to define;
-- leaves everything else to acquire.lua.
--
-- KEYS and ARGV as in acquire.lua
-- Reply as there, in one text with a colon between two fields
local full = limit and group == wanted and tonumber(used) >= tonumber(limit)
if ARGV[5] == '1' and ARGV[6] == '' and not mine and (full or (group == 'W' and (mode == 'R' or mode == 'W'))) and tonumber(next) > ms then
  local known = redis.call('HMGET', KEYS[3], '@' .. ARGV[2], '#seen', '#last')
  if known[1] and known[2] and math.abs(ms - known[2]) <= 1500 and known[3] and #known[3] == #token and known[3] < token then
    local place, me = token, ARGV[1] .. ':' .. ARGV[2]
    -- A request that is sent once more finds the place that the first one took.
    if redis.call('ZADD', KEYS[2], 'NX', place, me) == 0 then place = redis.call('ZSCORE', KEYS[2], me) end
    redis.call('HSET', KEYS[3],
      ARGV[1], ARGV[3] .. mode .. ARGV[4], '@' .. ARGV[2], string.format('%.0f', ms + 3000),
      '#seen', string.format('%.0f', ms), '#last', token, '#group', wanted)
    redis.call('PEXPIRE', KEYS[2], 30000)
    redis.call('PEXPIRE', KEYS[3], 30000)
    -- The last token that this lock has given; the counter's may be another lock's.
    return ARGV[1] .. ':0:' .. string.format('%.0f', next - ms) .. ':' .. place .. ':1:' .. (latest or '0')
  end
end
