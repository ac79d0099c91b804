-- Shared by every script that can hand a lock over. Comes first in each of them.
--
-- KEYS[1] lock     string: <nonce 32>:<client 16>:<holder JSON>:<token>, with a TTL, and ! at its end if others wait; any
--                  other text is a client of another library
-- KEYS[2] queue    sorted set: <nonce 32>:<client 16>, scored by the ticket (µs at which the waiter first came)
-- KEYS[3] waiters  hash: <nonce> -> <claim ms><holder JSON>; @<client> -> alive until (ms); #seen -> last sign of any
--                  waiter (ms); #last -> the last ticket; #grace -> nobody who was alive at
--                  #stalled is dropped before (ms); #run, #since,
--                  #yield -> shared keys only
-- KEYS[4] fence    string: the last token, and q at its end if a queue stands
-- KEYS[5] forced   string: <nonce>:<text>, why the last grant was freed by force
--
-- Time is the server's. Under memory pressure every write that needs memory fails from a script's first command on or
-- not at all; the scripts therefore free first and grant afterwards, and a grant that fails leaves the waiter queued.

local LOCK, QUEUE, WAITERS, FENCE, FORCED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local LIVENESS = 3000  -- ms without a sign after which a waiting client counts as dead
local STALL = 1500     -- ms without a sign of any waiter: the server stood still, and who was alive before gets a full
                       -- liveness anew
local KEEP = 30000     -- ms after which a queue without any sign is forgotten
local RUN, SLICE, YIELD = 20, 200, 50 -- hand-overs or ms in a row, then ms for which a shared key is left free

local function text(number) return string.format('%.0f', number) end

local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- max(last + 1, now), remembered until two hours after the later of itself and now
local function next_token(now, more)
  local last = string.match(redis.call('GET', FENCE) or '', '^%d+')
  local token = math.max(tonumber(last or 0) + 1, now)
  redis.call('SET', FENCE, text(token) .. (more and 'q' or ''), 'PX', text(math.ceil((token - now) / 1000) + 7200000))
  return text(token)
end

-- `more`: whether others wait behind this holder
local function grant(holder, card, now, ttl, more)
  local token = next_token(now, more)
  redis.call('SET', LOCK, holder .. ':' .. card .. ':' .. token .. (more and '!' or ''), 'PX', ttl)
  return token
end

-- Tells the short ways that somebody waits: take.lua by the fence, drop.lua by the lock.
local function mark(held)
  local last = redis.call('GET', FENCE)
  if not last then
    redis.call('SET', FENCE, '0q', 'PX', '7200000')
  elseif string.sub(last, -1) ~= 'q' then
    redis.call('SET', FENCE, last .. 'q', 'KEEPTTL')
  end
  local ours = held and string.sub(held, 33, 33) == ':' and string.sub(held, 50, 51) == ':{'
  if ours and string.sub(held, -1) ~= '!' then redis.call('APPEND', LOCK, '!') end
end

local function leave(member)
  redis.call('ZREM', QUEUE, member)
  redis.call('HDEL', WAITERS, string.sub(member, 1, 32))
  if redis.call('EXISTS', QUEUE) == 0 then
    redis.call('DEL', WAITERS)
    local last = redis.call('GET', FENCE)
    -- Without memory the mark stays; it only sends the next one the long way.
    if last and string.sub(last, -1) == 'q' then redis.pcall('SET', FENCE, string.sub(last, 1, -2), 'KEEPTTL') end
  end
end

-- Whether an instant lies ahead, and not further than it can have been set: the clock may have been set back.
local function within(instant, ms, longest)
  local ahead = tonumber(instant or 0) - ms
  return ahead > 0 and ahead <= longest
end

-- If the server stood still, or its clock was set back: since when. Who was alive then is spared for a liveness.
local function stood_still(ms, seen, grace)
  if within(grace, ms, LIVENESS) then return nil end
  local gap = ms - tonumber(seen or 0)
  if gap > STALL then return seen or '0' end
  if gap < -STALL then return '0' end
  return nil
end

-- A shared key is left free now and then; returns whether now is such a moment.
local function yields(ms, channels, client)
  local yield, run, since = unpack(redis.call('HMGET', WAITERS, '#yield', '#run', '#since'))
  if within(yield, ms, YIELD) then return true end
  run, since = tonumber(run or 0), math.min(tonumber(since or ms), ms + YIELD)
  if run >= RUN or ms - since >= SLICE then
    redis.call('HSET', WAITERS, '#yield', text(ms + YIELD), '#run', 0, '#since', text(ms + YIELD))
    redis.call('PUBLISH', channels .. client, 'P' .. YIELD .. ':' .. LOCK)
    return true
  end
  redis.call('HSET', WAITERS, '#run', run + 1, '#since', text(since))
  return false
end

-- Hands a free lock to the first waiter that lives. The caller's own process learns of it by the reply, every other by
-- push. Returns the new holder, its token and its claim time.
local function promote(now, channels, caller, shared)
  local ms = math.floor(now / 1000)
  while true do
    local first = redis.call('ZRANGE', QUEUE, 0, 0)[1]
    if not first then return nil end
    local nonce, client = string.sub(first, 1, 32), string.sub(first, 34, 49)
    local card, alive, seen, grace, stalled =
      unpack(redis.call('HMGET', WAITERS, nonce, '@' .. client, '#seen', '#grace', '#stalled'))
    local since = stood_still(ms, seen, grace)
    if since then
      grace, stalled = ms + LIVENESS, since
      redis.pcall('HSET', WAITERS, '#seen', text(ms), '#grace', text(grace), '#stalled', stalled)
    end
    alive = tonumber(alive or 0)
    local lives = alive >= ms and alive <= ms + LIVENESS
    local spared = within(grace, ms, LIVENESS) and alive >= tonumber(stalled or 0)
    if card and (lives or spared) then
      if shared == '1' and yields(ms, channels, client) then return nil end
      local digits = string.find(card, '{', 1, true) - 1
      local claim = string.sub(card, 1, digits)
      local more = redis.call('ZCARD', QUEUE) > 1
      local granted, token = pcall(grant, first, string.sub(card, digits + 1), now, claim, more)
      if not granted then return nil end
      leave(first)
      if client ~= caller then redis.call('PUBLISH', channels .. client, 'G' .. nonce .. ':' .. token .. ':' .. claim) end
      return first, token, claim
    end
    redis.call('HDEL', WAITERS, '@' .. client)
    leave(first)
  end
end

-- Marks the client as alive; returns whether it counted as alive before.
local function sign(ms, client)
  local alive, seen, grace = unpack(redis.call('HMGET', WAITERS, '@' .. client, '#seen', '#grace'))
  local since = seen and stood_still(ms, seen, grace)
  if since then redis.call('HSET', WAITERS, '#grace', text(ms + LIVENESS), '#stalled', since) end
  redis.call('HSET', WAITERS, '@' .. client, text(ms + LIVENESS), '#seen', text(ms))
  redis.call('PEXPIRE', QUEUE, KEEP)
  redis.call('PEXPIRE', WAITERS, KEEP)
  return alive and 1 or 0
end

-- Gives the lock back if it is held under this nonce. Returns whether it was, and the next holder if there is one.
local function free(nonce, channels, caller, shared)
  local held = redis.call('GET', LOCK)
  if not held or string.sub(held, 1, 32) ~= nonce then return false end
  redis.call('DEL', LOCK)
  if redis.call('EXISTS', QUEUE) == 0 then return true end
  return true, promote(now_us(), channels, caller, shared)
end

-- Why this grant is not there: the text of a release by force, or ''.
local function why(nonce)
  local forced = redis.call('GET', FORCED)
  if forced and string.sub(forced, 1, 32) == nonce then return string.sub(forced, 34) end
  return ''
end
