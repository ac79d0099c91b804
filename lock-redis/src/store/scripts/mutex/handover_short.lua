-- The usual hand-over, in as few calls as can be: the lock is held under this nonce, and the first waiter shows life.
-- Comes before queue.lua, whose functions cost time to define, and leaves everything else to release.lua; until the
-- first write has succeeded nothing is changed.
--
-- KEYS and ARGV as in release.lua
-- Reply as there, in one text with a colon between two fields
if ARGV[4] == '' then
  local held = redis.call('GET', KEYS[1])
  local first = held and string.sub(held, 1, 32) == ARGV[1] and redis.call('ZRANGE', KEYS[2], 0, 1)
  if first and first[1] then
    local next, client = string.sub(first[1], 1, 32), string.sub(first[1], 34, 49)
    local waiter = redis.call('HMGET', KEYS[3], next, '@' .. client, '#seen')
    local time = redis.call('TIME')
    local ms = time[1] * 1000 + math.floor(time[2] / 1000)
    local alive = tonumber(waiter[2] or 0) - ms
    -- As queue.lua has it: alive for 3 s from the last sign, unless the server stood still or its clock was set back.
    local brace = string.find(waiter[1] or '', '{', 1, true)
    local usual = brace and waiter[3] and alive >= 0 and alive <= 4500 and math.abs(ms - waiter[3]) <= 1500
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
      local ttl, info = string.sub(waiter[1], 1, brace - 1), string.sub(waiter[1], brace)
      -- The caller learns of it by the reply, and has it for its TTL; every other one for a claim time (queue.lua).
      if client ~= ARGV[2] and #ttl > 3 then ttl = math.min(ttl, 2000) end
      redis.call('SET', KEYS[1], first[1] .. ':' .. info .. ':' .. token .. (first[2] and '!' or ''), 'PX', ttl)
      redis.call('ZREM', KEYS[2], first[1])
      if first[2] then redis.call('HDEL', KEYS[3], next) else redis.call('DEL', KEYS[3]) end
      if client == ARGV[2] then return ARGV[1] .. ':1:' .. next .. ':' .. token .. ':' .. ttl end
      redis.call('PUBLISH', ARGV[3] .. client, 'G' .. next .. ':' .. token .. ':' .. ttl)
      return ARGV[1] .. ':1'
    end
    -- No memory, or the last token is unknown: as it was, and the long way.
    if type(last) == 'string' then redis.call('SET', KEYS[4], last, 'KEEPTTL') end
    if usual and not last then redis.call('DEL', KEYS[4]) end
  end
end

