-- Raises a counter of tokens by so many at once, to the server's µs at least, as base.lua does it for one. Returns the first of them,
-- and the time in µs; nothing if there is no memory for it, or something else in its place.
local function raise_tokens(key, number)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local first, top = now, string.format('%.0f', now + number - 1)
  local last = redis.pcall('SET', key, top, 'KEEPTTL', 'GET')
  if type(last) == 'table' then return nil end
  if last and (tonumber(last) or 0) >= now then
    -- The clock stands still or was set back: more than the last.
    first = math.max((tonumber(string.match(last, '^%d+')) or 0) + 1, now)
    local keep = math.ceil((first + number - now) / 1000) + 7200000
    redis.call('SET', key, string.format('%.0f', first + number - 1), 'PX', string.format('%.0f', keep))
  elseif not last or string.sub(last, 1, 7) ~= string.sub(top, 1, 7) then
    -- The memory of the last token is made to last again every 1,000 s.
    redis.call('PEXPIRE', key, '7200000')
  end
  return first, now
end

