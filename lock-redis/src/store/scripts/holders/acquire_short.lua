-- The usual way to a lock that leaves room and for which nobody waits, in as few calls as can be. Comes before base.lua and
-- many.lua, whose functions cost time to define, and leaves everything else to acquire_free.lua; until the grant is certain nothing
-- is changed but the counter.
--
-- KEYS, ARGV and reply as in acquire.lua; in a batch for whose locks nobody waits there is no KEYS[2], and in each batch [10] is the
--      token, which is noted already, and [11] the time in ms
local mode = ARGV[9]
local mine, next, group, used, latest = unpack(redis.call('HMGET', KEYS[1], ARGV[1], '#next', '#group', '#used', '#token'))
local token, ms = ARGV[10], ARGV[11]
if not token then
  local time = redis.call('TIME')
  token, ms = time[1] .. string.sub('00000' .. time[2], -6), time[1] * 1000 + math.floor(time[2] / 1000)
end
local permits, limit = string.match(mode, '^P(%d+)/(%d+)$')
local wanted = limit and 'P/' .. limit or mode
do
  local weight, room = tonumber(permits or 1), false
  if not next then
    room = redis.call('EXISTS', KEYS[1], KEYS[2] or KEYS[1]) == 0
    next, used = math.huge, 0
  elseif not mine and tonumber(next) > ms and group == wanted then
    -- An owner that enters again keeps its token, which is left to acquire_free.lua.
    local fits = mode == 'R' or (limit and used + weight <= tonumber(limit))
    room = fits and not (KEYS[2] and redis.call('EXISTS', KEYS[2]) == 1)
  end
  local last = room and not ARGV[10] and redis.pcall('SET', KEYS[4], token, 'KEEPTTL', 'GET')
  local first = room and not ARGV[10] and not last
  local noted = first or (type(last) == 'string' and #last == #token and (last < token or tonumber(last)))
  if noted and not first and last >= token then
    -- The server's clock stands still or was set back: one more than the last, whose memory ends long after the clock has come to it.
    token = string.format('%.0f', last + 1)
    redis.call('SET', KEYS[4], token, 'KEEPTTL')
  elseif noted and (first or string.sub(last, 1, 7) ~= string.sub(token, 1, 7)) then
    redis.call('PEXPIRE', KEYS[4], '7200000')
  end
  if room and (ARGV[10] or noted) then
    local ends = string.format('%.0f', ms + ARGV[3])
    redis.call('HSET', KEYS[1],
      ARGV[1], ends .. ':' .. token .. ':' .. ARGV[2] .. ':' .. mode .. ':' .. ARGV[4],
      '#next', string.format('%.0f', math.min(tonumber(next), ms + ARGV[3])),
      '#group', wanted, '#used', string.format('%.0f', used + weight), '#token', token)
    if next == math.huge or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
      redis.call('PEXPIRE', KEYS[1], ARGV[3])
    end
    return { ARGV[1], 1, token, ARGV[3] }
  end
  -- The last token is none: as it was, and the long way.
  if type(last) == 'string' then redis.call('SET', KEYS[4], last, 'KEEPTTL') end
end
