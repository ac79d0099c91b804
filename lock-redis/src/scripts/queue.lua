-- The queue of a lock, whatever its kind: who waits, who of them lives, and whose turn it is. Comes after base.lua and
-- what holds the lock.
--
-- KEYS[3] waiters  hash: <nonce> -> <claim ms><mode><holder JSON>; @<client> -> alive until (ms); #seen -> last sign of
--                  any waiter (ms); #last -> the last ticket; #grace -> nobody who was alive at #stalled is dropped before
--                  (ms); #group -> what all of them ask for, as in many.lua; #run, #since, #yield -> shared keys only

local LIVENESS = 3000  -- ms without a sign after which a waiting client counts as dead
local STALL = 1500     -- ms without a sign of any waiter: the server stood still, and who was alive before gets a full
                       -- liveness anew
local KEEP = 30000     -- ms after which a queue without any sign is forgotten
local RUN, SLICE, YIELD = 20, 200, 50 -- hand-overs or ms in a row, then ms for which a shared key is left free

local function leave(member)
  redis.call('ZREM', QUEUE, member)
  redis.call('HDEL', WAITERS, string.sub(member, 1, 32))
  if redis.call('EXISTS', QUEUE) == 0 then
    redis.call('DEL', WAITERS)
    unmark()
  end
end

-- Whether an instant lies ahead, and not further than it can have been set: the clock may have been set back. By less
-- than a stall that goes unnoticed, and must not cost a living waiter its place.
local function within(instant, ms, longest)
  local ahead = tonumber(instant or 0) - ms
  return ahead > 0 and ahead <= longest
end

-- If the server stood still, or its clock was set back: since when. Who was alive then is spared for a liveness.
local function stood_still(ms, seen, grace)
  if within(grace, ms, LIVENESS + STALL) then return nil end
  local gap = ms - tonumber(seen or 0)
  if gap > STALL then return seen or '0' end
  if gap < -STALL then return '0' end
  return nil
end

-- A shared key is left free now and then; returns whether now is such a moment. If nobody gives it back just now, it was
-- free already: other libraries had their moment, and a new run begins. (To yield again then would ask for two free
-- moments in a row, which a busy key may never have.)
local function yields(ms, channels, client, given)
  local yield, run, since = unpack(redis.call('HMGET', WAITERS, '#yield', '#run', '#since'))
  if within(yield, ms, YIELD) then return true end
  if not given then run, since = nil, nil end
  run, since = tonumber(run or 0), math.min(tonumber(since or ms), ms + YIELD)
  if run >= RUN or ms - since >= SLICE then
    redis.call('HSET', WAITERS, '#yield', text(ms + YIELD), '#run', 0, '#since', text(ms + YIELD))
    redis.call('PUBLISH', channels .. client, 'P' .. YIELD .. ':' .. LOCK)
    return true
  end
  redis.call('HSET', WAITERS, '#run', run + 1, '#since', text(since))
  return false
end

-- Lets in who is first, lives and finds room, one after the other. The caller is the client that makes room, or ''; its own
-- process learns of it by the reply, every other by push. Returns {nonce, token, claim ms, ...} of the caller's grants.
local function promote(now, channels, caller, shared)
  local ms, own = math.floor(now / 1000), {}
  while open(now) do
    local first = redis.call('ZRANGE', QUEUE, 0, 0)[1]
    if not first then break end
    local nonce, client = string.sub(first, 1, 32), string.sub(first, 34, 49)
    local card, alive, seen_at, grace, stalled =
      unpack(redis.call('HMGET', WAITERS, nonce, '@' .. client, '#seen', '#grace', '#stalled'))
    local since = stood_still(ms, seen_at, grace)
    if since then
      grace, stalled = ms + LIVENESS, since
      -- As if the last sign were of the end of the grace: nobody is spared twice for one silence.
      redis.pcall('HSET', WAITERS, '#seen', text(grace), '#grace', text(grace), '#stalled', stalled)
    end
    alive = tonumber(alive or 0)
    local lives = alive >= ms and alive <= ms + LIVENESS + STALL
    local spared = within(grace, ms, LIVENESS + STALL) and alive >= tonumber(stalled or 0)
    if card and (lives or spared) then
      local claim, mode, holder = string.match(card, '^(%d+)([^{]*)(.*)$')
      if not admits(now, mode) or (shared == '1' and yields(ms, channels, client, caller ~= '')) then break end
      local granted, token = pcall(grant, now, first, mode, holder, claim, redis.call('ZCARD', QUEUE) > 1)
      if not granted then break end
      leave(first)
      -- Lua can hand back some thousands of values.
      if client == caller and #own < 3000 then
        own[#own + 1], own[#own + 2], own[#own + 3] = nonce, token, claim
      else
        redis.call('PUBLISH', channels .. client, 'G' .. nonce .. ':' .. token .. ':' .. claim)
      end
    else
      redis.call('HDEL', WAITERS, '@' .. client)
      leave(first)
    end
  end
  return own
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
