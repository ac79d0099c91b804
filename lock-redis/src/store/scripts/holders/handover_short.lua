-- The usual hand-over, in as few calls as can be: the first waiter lives and takes all the room that there is, or is the only one. Comes
-- after release_short.lua, which has looked at the lock, and before base.lua, many.lua and queue.lua, whose functions cost time to define;
-- leaves everything else to release.lua. Until the first write has succeeded nothing is changed.
--
-- KEYS and ARGV as in release.lua
-- Reply as there, in one text with a colon between two fields
if first and first[1] then
  local waiter, client = string.sub(first[1], 1, 32), string.sub(first[1], 34, 49)
  local entry, alive, seen = unpack(redis.call('HMGET', KEYS[3], waiter, '@' .. client, '#seen'))
  local time = redis.call('TIME')
  local ms = time[1] * 1000 + math.floor(time[2] / 1000)
  local ahead = tonumber(alive or 0) - ms
  -- As queue.lua has it: alive for 3 s from the last sign, unless the server stood still or its clock was set back. And no grant has
  -- ended, this one included.
  local usual = entry and seen and ahead >= 0 and ahead <= 4500 and math.abs(ms - seen) <= 1500 and tonumber(next) > ms
  local ttl, mode = string.match(usual and entry or '', '^(%d+)([^{]*)')
  local released, of = string.match(record, '^%d+:%d+:%x+:P(%d+)/(%d+):')
  local left = math.max(used - (released or 1), 0)
  local permits, limit = string.match(mode or '', '^P(%d+)/(%d+)$')
  if limit then
    local room = limit - left
    usual = (left == 0 or of == limit) and (permits - room == 0 or (not first[2] and permits - room < 0))
  else
    -- Behind a reader or an owner others may be let in, too.
    usual = mode and left == 0 and (mode == 'W' or (mode ~= '' and not first[2]))
  end
  local token = time[1] .. string.sub('00000' .. time[2], -6)
  local last = usual and redis.pcall('SET', KEYS[4], token, 'KEEPTTL', 'GET')
  if type(last) == 'string' and #last == #token and (last < token or tonumber(last)) then
    if last >= token then
      -- The server's clock stands still or was set back: one more than the last, whose memory ends long after the clock has come to it.
      token = string.format('%.0f', last + 1)
      redis.call('SET', KEYS[4], token, 'KEEPTTL')
    elseif string.sub(last, 1, 7) ~= string.sub(token, 1, 7) then
      redis.call('PEXPIRE', KEYS[4], '7200000')
    end
    -- The caller learns of it by the reply, and has it for its TTL; every other one for a claim time (queue.lua).
    local info = string.sub(entry, #ttl + #mode + 1)
    if client ~= ARGV[2] and #ttl > 3 then ttl = math.min(ttl, 2000) end
    local ends, weight = ms + ttl, permits or '1'
    local end_text = string.format('%.0f', ends)
    redis.call('HDEL', KEYS[1], ARGV[1])
    redis.call('HSET', KEYS[1], waiter, end_text .. ':' .. token .. ':' .. client .. ':' .. mode .. ':' .. info,
      '#next', (left == 0 or ends < tonumber(next)) and end_text or next, '#group', limit and 'P/' .. limit or mode,
      '#used', left == 0 and weight or string.format('%.0f', left + weight), '#token', token)
    if left == 0 or redis.call('PTTL', KEYS[1]) < tonumber(ttl) then redis.call('PEXPIRE', KEYS[1], ttl) end
    redis.call('ZREM', KEYS[2], first[1])
    if first[2] then redis.call('HDEL', KEYS[3], waiter) else redis.call('DEL', KEYS[3]) end
    if client == ARGV[2] then return ARGV[1] .. ':1:' .. waiter .. ':' .. token .. ':' .. ttl end
    redis.call('PUBLISH', ARGV[3] .. client, 'G' .. waiter .. ':' .. token .. ':' .. ttl)
    return ARGV[1] .. ':1'
  end
  -- No memory, or the last token is unknown: as it was, and the long way.
  if type(last) == 'string' then redis.call('SET', KEYS[4], last, 'KEEPTTL') end
  if usual and not last then redis.call('DEL', KEYS[4]) end
end
