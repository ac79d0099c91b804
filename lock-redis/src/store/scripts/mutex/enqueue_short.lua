-- The usual way into a queue, in as few calls as can be: somebody else holds the lock, others of this client wait
-- already. Comes before queue.lua, whose functions cost time to define, and leaves everything else to acquire.lua.
--
-- KEYS and ARGV as in acquire.lua
-- Reply as there, in one text with a colon between two fields
if ARGV[5] == '1' and ARGV[6] == '' and ARGV[8] == '' then
  local held = redis.call('GET', KEYS[1])
  if held and string.sub(held, -1) == '!' and string.sub(held, 1, 32) ~= ARGV[1] then
    local known = redis.call('HMGET', KEYS[3], '@' .. ARGV[2], '#seen', '#last')
    local time = redis.call('TIME')
    local ms = time[1] * 1000 + math.floor(time[2] / 1000)
    local ticket = time[1] .. string.sub('00000' .. time[2], -6)
    if known[1] and known[2] and math.abs(ms - known[2]) <= 1500 and known[3] and #known[3] == #ticket and known[3] < ticket then
      local place, me = ticket, ARGV[1] .. ':' .. ARGV[2]
      -- A request that is sent once more finds the place that the first one took.
      if redis.call('ZADD', KEYS[2], 'NX', ticket, me) == 0 then place = redis.call('ZSCORE', KEYS[2], me) end
      local alive = string.format('%.0f', ms + 3000)
      redis.call('HSET', KEYS[3], ARGV[1], ARGV[3] .. ARGV[4], '@' .. ARGV[2], alive, '#last', ticket)
      return ARGV[1] .. ':0:-1:' .. place .. ':1:' .. (string.match(held, ':(%d+)!$', -24) or '0')
    end
  end
end

