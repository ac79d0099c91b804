-- The queue of a lock, whatever its kind: who waits, who of them lives, and whose turn it is. Comes after base.lua and
-- what holds the lock.
--
-- KEYS[3] waiters  hash: <nonce> -> <TTL ms><mode><holder JSON>; @<client> -> alive until (ms); #seen -> last sign of
--                  any waiter (ms); #last -> the last ticket; #grace -> nobody who was alive at #stalled is dropped before
--                  (ms); #group -> what all of them ask for, as in many.lua; #swept -> how far clearing up
--                  signs has come; #sought -> how many of the queue were looked at for dead ones, if not all
--                  At a shared key also the account of turns, which outlives the queue: #run -> hand-overs in a row;
--                  #since -> when they began (ms); #most -> how many there may be before the key is left free; #yield ->
--                  until when it is left free (ms), 0 once a foreign client has had it; #to -> the nonce of the last
--                  hand-over; #who -> the foreign client that had it last, if none of ours had it since

local LIVENESS = 3000  -- ms without a sign after which a waiting client counts as dead
local STALL = 1500     -- ms without a sign of any waiter: the server stood still, and who was alive before gets a full
                       -- liveness anew
local KEEP = 30000     -- ms after which a queue without any sign is forgotten
local CLAIM = 2000     -- ms at most for which a lock that is handed over is kept until the waiter's client, which may have died a
                       -- moment ago, has claimed it
local MOST = 600       -- budget of one run: 1 for a waiter that it drops, 4 for one that it lets in; the server stands still meanwhile
local MORE = -3        -- in place of the ms until a lease ends: there is more to do than one run may; ask again at once
local SWEEP = 32       -- fields that one run looks at for signs of clients that have gone, and waiters for dead ones, if none is
local RUN, SLICE, YIELD = 20, 200, 50 -- hand-overs or ms in a row, then ms for which a shared key is left free
local STREAK = 8       -- turns in a row at most that ours have because foreign clients had as many
local ACCOUNT = 10000  -- ms for which the account of a shared key's turns outlives its queue
local FOREIGN = -4     -- also in place of the ms until a lease ends: a foreign client holds the key, and the asking client
                       -- has the first waiter
local FREE = -1000     -- the same, less the ms for which a shared key is left free

-- Writes down the account of a shared key's turns.
local function settle(run, since, most, yield, to, who)
  redis.call('HSET', WAITERS, '#run', run, '#since', since, '#most', most, '#yield', yield, '#to', to, '#who', who)
end

local function account() return redis.call('HMGET', WAITERS, '#run', '#since', '#most', '#yield', '#to', '#who') end

-- Takes these members out of the queue, and these fields out of the hash.
local function leave_all(members, fields)
  redis.call('ZREM', QUEUE, unpack(members))
  redis.call('HDEL', WAITERS, unpack(fields))
  if redis.call('EXISTS', QUEUE) == 0 then
    local turns = account()
    redis.call('DEL', WAITERS)
    -- Without memory it is forgotten.
    if turns[1] and pcall(settle, unpack(turns)) then redis.call('PEXPIRE', WAITERS, ACCOUNT) end
  end
end

local function leave(member) leave_all({ member }, { string.sub(member, 1, 32) }) end

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

-- A shared key is left free now and then; returns whether now is such a moment. Ours and foreign clients take turns while
-- foreign ones are about: ours have as many in a row as foreign ones had before, for those may be the quicker ones when a
-- key becomes free, and then it is left free. A moment that nobody uses makes the next one come later.
-- If the number of waiting foreign clients is known, everybody has about one turn in each round: first they have as many in a row as they
-- are, then ours have as many in proportion. Foreign clients do not queue among themselves. One that comes at the right moment is quicker
-- than those that wait, at each single turn, but not in the middle of several.
local function yields(ms, channels, client, nonce)
  local run, since, most, yield, to, who = unpack(account())
  if within(yield, ms, YIELD) then return true end
  local theirs, ours = waiting(), redis.call('ZCARD', QUEUE)
  local known = theirs and theirs > 0
  run, since = tonumber(run or 0), math.min(tonumber(since or ms), ms + YIELD)
  most = tonumber(most or known and 1 or RUN)
  if not freed then
    -- Whoever of theirs had it last is not among those who wait, and wants it again.
    if known and tonumber(yield or 0) == 0 and (who or '') ~= '' then
      theirs = theirs + 1
      if most < math.min(theirs, math.floor(STREAK * theirs / ours), STREAK) then
        settle(0, text(ms), most, text(ms + YIELD), '', who)
        return true
      end
    end
    -- It was free already: others had their moment. (To yield again then would ask for two free moments in a row, which
    -- a busy key may never have.)
    if tonumber(yield or 0) > 0 then most = math.min(most * 2, RUN) end
    run, since = 0, ms
  else
    -- The grant that ended had not been handed over: it took the key while that was free.
    if freed ~= to then run, since = 1, ms end
    -- The one that has just released it counts too.
    local share = known and math.max(math.floor(most * (ours + 1) / theirs), 1)
    local over = ms - since >= SLICE and not share
    if run >= (share or theirs and RUN or most) or over then
      settle(0, text(ms + YIELD), most, text(ms + YIELD), '', '')
      redis.call('PUBLISH', channels .. client, 'P0:' .. LOCK)
      return true
    end
  end
  settle(run + 1, text(since), most, 0, nonce, '')
  return false
end

-- Counts the turn of a foreign client that holds a shared key.
local function meet(ms)
  local who = redis.call('EXISTS', QUEUE) == 1 and foreign()
  if not who then return end
  -- Whatever its bytes, as a text that is never empty.
  who = '=' .. string.gsub(string.sub(who, 1, 64), '%W', function(byte) return string.format('%%%02x', string.byte(byte)) end)
  local _, _, most, _, _, before = unpack(account())
  if before == who then return end
  pcall(settle, 0, text(ms), (before or '') == '' and 1 or math.min(most + 1, STREAK), 0, '', who)
end

-- What a waiter of this client is told of when to ask again: ms, or one of the numbers above.
local function pause(now, client, shared, more)
  if more then return MORE end
  local first = shared == '1' and redis.call('ZRANGE', QUEUE, 0, 0)[1]
  if first and string.sub(first, 34, 49) == client then
    if foreign() then return FOREIGN end
    local ms, yield = math.floor(now / 1000), redis.call('HGET', WAITERS, '#yield')
    if within(yield, ms, YIELD) and redis.call('EXISTS', LOCK) == 0 then return FREE - (yield - ms) end
  end
  return ends_in(now)
end

-- The members of the queue behind the first ones, so many at most, with what is known of each: {member, nonce, client, entry, alive until}.
local function some_of_all(first, count)
  local some, fields = redis.call('ZRANGE', QUEUE, first, first + count - 1), {}
  for i, member in ipairs(some) do
    fields[2 * i - 1], fields[2 * i] = string.sub(member, 1, 32), '@' .. string.sub(member, 34, 49)
  end
  local known = some[1] and redis.call('HMGET', WAITERS, unpack(fields))
  for i, member in ipairs(some) do
    some[i] = { member, fields[2 * i - 1], string.sub(fields[2 * i], 2), known[2 * i - 1], tonumber(known[2 * i] or 0) }
  end
  return some
end

-- Whether a waiter with this entry counts: its client lives, or lived when the server stood still and is spared.
local function counts(ms, entry, alive, grace, stalled)
  local lives = alive >= ms and alive <= ms + LIVENESS + STALL
  return entry and (lives or (within(grace, ms, LIVENESS + STALL) and alive >= stalled))
end

local function claim_of(ttl) return math.min(ttl, CLAIM) end

-- Lets in the first waiters that live and find room, one after the other. The caller is the client that makes room, or '': it learns of its
-- grants by the reply, and has them for their TTLs, as it has just shown life. Other clients learn of theirs by push. Returns {nonce,
-- token, TTL ms, ...} of the caller's grants, whether more is to be done than one run may (then the asking client asks again at once), and
-- what is left of the run's budget.
local function promote(now, channels, caller, shared)
  if shared == '1' then meet(math.floor(now / 1000)) end
  local ms, own, pushes, left, size, stop = math.floor(now / 1000), {}, {}, MOST, 1, not open(now)
  local stalled, grace
  while not stop and left > 0 do
    -- Few at first: most often one of them takes all the room that there is.
    local front, members, fields = some_of_all(0, math.min(size, left)), {}, {}
    size, stop = size * 4, not front[1]
    if not stop and not stalled then
      local seen_at
      seen_at, grace, stalled = unpack(redis.call('HMGET', WAITERS, '#seen', '#grace', '#stalled'))
      local since = stood_still(ms, seen_at, grace)
      if since then
        grace, stalled = ms + LIVENESS, since
        -- As if the last sign were of the end of the grace: nobody is spared twice for one silence.
        redis.pcall('HSET', WAITERS, '#seen', text(grace), '#grace', text(grace), '#stalled', stalled)
      end
      stalled = tonumber(stalled or 0)
    end
    local behind = stop and 0 or redis.call('ZCARD', QUEUE)
    for _, waiter in ipairs(front) do
      local member, nonce, client, entry, alive = unpack(waiter)
      if left <= 0 or not open(now) then break end
      if counts(ms, entry, alive, grace, stalled) then
        local ttl, mode, info = string.match(entry, '^(%d+)([^{]*)(.*)$')
        if client ~= caller then ttl = claim_of(ttl) end
        stop = not admits(now, mode) or (shared == '1' and yields(ms, channels, client, nonce))
        if stop then break end
        several = true
        local granted, token = pcall(grant, now, member, mode, info, ttl, behind > #members + 1)
        several = false
        if not granted then
          stop = true
          break
        end
        if client == caller then
          own[#own + 1], own[#own + 2], own[#own + 3] = nonce, token, ttl
        else
          pushes[#pushes + 1] = { channels .. client, 'G' .. nonce .. ':' .. token .. ':' .. ttl }
        end
        left = left - 4
      else
        fields[#fields + 1] = '@' .. client
        left = left - 1
      end
      members[#members + 1], fields[#fields + 1] = member, nonce
    end
    if members[1] then leave_all(members, fields) end
    stop = stop or not open(now)
  end
  if given and #own / 3 + #pushes > 1 then note_token(now) end
  for _, push in ipairs(pushes) do redis.call('PUBLISH', push[1], push[2]) end
  return own, (not stop or unfinished()) and redis.call('EXISTS', QUEUE) == 1, left
end

-- The reply to what makes room.
local function replied(nonce, own, more) return { nonce, more and 2 or 1, unpack(own) } end

-- Drops dead waiters wherever they stand, whether or not the lock leaves room: of a lock that stays held promote() drops nobody. Looks
-- at a part of the queue in each run, and at more while it finds some. Comes after sign(), which notes that the server stood still.
-- Returns whether there may be more of them: then the asking client asks again at once.
local function drop_dead(ms, left)
  local sought, grace, stalled = unpack(redis.call('HMGET', WAITERS, '#sought', '#grace', '#stalled'))
  local first, size, dead = tonumber(sought or 0), SWEEP, true
  stalled = tonumber(stalled or 0)
  while dead and left > 0 and first do
    size = math.min(size, left)
    local some, members, fields = some_of_all(first, size), {}, {}
    for _, waiter in ipairs(some) do
      local member, nonce, client, entry, alive = unpack(waiter)
      if not counts(ms, entry, alive, grace, stalled) then
        members[#members + 1], fields[#fields + 1], fields[#fields + 2] = member, nonce, '@' .. client
      end
    end
    dead = members[1] ~= nil
    if dead then leave_all(members, fields) end
    first = #some == size and first + size - #members
    left, size = left - size, size * 4
  end
  -- The queue still has those who stand before the next one to look at, so that there is a hash to write to.
  if first and first > 0 then
    redis.call('HSET', WAITERS, '#sought', text(first))
  elseif sought then
    redis.call('HDEL', WAITERS, '#sought')
  end
  return dead
end

-- Clients that have gone leave a sign behind; with a queue that never empties somebody has to clear up, a little at a time.
local function sweep(ms)
  if redis.call('HLEN', WAITERS) <= 2 * redis.call('ZCARD', QUEUE) + 64 then return end
  -- After a stall the signs of those who live are old, too: only who was dead before is gone.
  local limit, grace, stalled = ms, unpack(redis.call('HMGET', WAITERS, '#grace', '#stalled'))
  if within(grace, ms, LIVENESS + STALL) then limit = tonumber(stalled) end
  local dead, from = {}, redis.call('HGET', WAITERS, '#swept') or '0'
  local next, some = unpack(redis.call('HSCAN', WAITERS, from, 'COUNT', SWEEP))
  for i = 1, #some, 2 do
    if string.sub(some[i], 1, 1) == '@' and tonumber(some[i + 1]) < limit then dead[#dead + 1] = some[i] end
  end
  if dead[1] then redis.call('HDEL', WAITERS, unpack(dead)) end
  redis.call('HSET', WAITERS, '#swept', next)
end

-- Marks the client as alive; returns whether it counted as alive before.
local function sign(ms, client)
  -- These come first: they need no memory, and what follows a write needs none to spare. Without memory, too, a waiter lives on, and gets
  -- the lock of a holder that crashed.
  redis.call('PEXPIRE', QUEUE, KEEP)
  redis.call('PEXPIRE', WAITERS, KEEP)
  local alive, seen, grace = unpack(redis.call('HMGET', WAITERS, '@' .. client, '#seen', '#grace'))
  local since = seen and stood_still(ms, seen, grace)
  if since then redis.call('HSET', WAITERS, '#grace', text(ms + LIVENESS), '#stalled', since) end
  redis.call('HSET', WAITERS, '@' .. client, text(ms + LIVENESS), '#seen', text(ms))
  -- Each new sign pays for its own end, so that signs never come faster than they go.
  if not alive then sweep(ms) end
  return alive and 1 or 0
end
