-- What the reentrant lock, the read-write lock and the semaphore hold: any number of grants, each with an end of its own.
--
-- KEYS[1] hash, which lives as long as its last grant:
--         <nonce 32> -> <end ms>:<token>:<client 16>:<mode>:<holder JSON>
--         #next -> ms before which no grant ends; #group -> the group of all grants; #used -> the sum of their weights;
--         #token -> the last grant's token. What is counted here is counted anew when #next has come: at once, or where
--         there are many grants a part in each run; #scan -> how far that has come, #least -> #next of what was looked at
--
-- A request's mode says what it wants:
--   mode                 group     weight   goes with
--   R                    R         1        other readers
--   W                    W         1        nobody
--   O<owner 32>          the same  1        other grants of the owner
--   P<permits>/<limit>   P/<limit> permits  as many as there are

local function fields(record) return string.match(record, '^(%d+):(%d+):(%x+):([^:]+):(.*)$') end

local function group(mode) return (string.gsub(mode, '^P%d+', 'P')) end

local function weight(mode) return tonumber(string.match(mode, '^P(%d+)') or 1) end

local PART = 500 -- grants that one run counts

local stuck -- whether there is no memory for how far a count has come, which would begin anew each time
local seen -- what is held, looked up once per run: {group =, used =, next =, token =, least =}

local function remember(...)
  if seen.least then redis.call('HSET', LOCK, '#least', text(seen.least)) end
  redis.call('HSET', LOCK, '#next', text(seen.next), '#group', seen.group, '#used', text(seen.used), '#token', seen.token, ...)
end

-- Counts anew, and clears away what has ended.
local function count(ms)
  local all = redis.call('HGETALL', LOCK)
  local ended = false
  -- The grant that was the last one may have ended.
  seen = { used = 0, next = math.huge, token = seen and seen.token }
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 1) ~= '#' then
      local ends, token, _, mode = fields(all[i + 1])
      -- Somebody else's hash, which is as foreign as another type: an error says so.
      if not ends then redis.call('GET', LOCK) end
      ends = tonumber(ends)
      if ends <= ms then
        redis.call('HDEL', LOCK, all[i])
        ended = true
      else
        seen.group, seen.used, seen.next = group(mode), seen.used + weight(mode), math.min(seen.next, ends)
        seen.token = seen.token or token
      end
    end
  end
  if seen.group then
    redis.call('HDEL', LOCK, '#scan', '#least')
    -- Without memory it is counted again the next time.
    pcall(remember)
  elseif ended then
    redis.call('DEL', LOCK)
  end
end

-- Clears away a part of what has ended. Until all has been looked at, what has ended counts as held.
local function count_a_part(ms)
  local from, least = unpack(redis.call('HMGET', LOCK, '#scan', '#least'))
  least = from and tonumber(least) or math.huge
  local to, some = unpack(redis.call('HSCAN', LOCK, from or '0', 'COUNT', PART))
  local ended, weights = {}, 0
  for i = 1, #some, 2 do
    if string.sub(some[i], 1, 1) ~= '#' then
      local ends, _, _, mode = fields(some[i + 1])
      if not ends then redis.call('GET', LOCK) end
      if tonumber(ends) > ms then
        least = math.min(least, tonumber(ends))
      else
        ended[#ended + 1], weights = some[i], weights + weight(mode)
      end
    end
  end
  -- The same field may be told twice, but not once it is gone.
  if ended[1] then redis.call('HDEL', LOCK, unpack(ended)) end
  if redis.call('HLEN', LOCK) <= PART then return count(ms) end
  seen.used, seen.least = math.max(seen.used - weights, 1), math.min(least, ms + 3600000)
  if to == '0' then
    seen.next, seen.least = seen.least, nil
    redis.call('HDEL', LOCK, '#scan', '#least')
    pcall(remember)
  else
    -- Whatever the clock does until all has been looked at: what comes meanwhile is of this count.
    seen.next = 0
    stuck = not pcall(remember, '#scan', to)
  end
end

local function look(now)
  if seen then return seen end
  local ms = math.floor(now / 1000)
  local next, used_by, used, token = unpack(redis.call('HMGET', LOCK, '#next', '#group', '#used', '#token'))
  seen = next and { next = tonumber(next), group = used_by, used = tonumber(used), token = token }
  if not seen or (seen.next <= ms and redis.call('HLEN', LOCK) <= PART) then
    count(ms)
  elseif seen.next <= ms then
    count_a_part(ms)
  end
  return seen
end

-- Whether some of what is counted may have ended, and the next run can go on with it.
local function unfinished() return seen and seen.least ~= nil and not stuck end

-- A grant's record, if it has not ended.
local function record_of(now, nonce)
  local record = look(now).group and redis.call('HGET', LOCK, nonce)
  if record and tonumber(string.match(record, '^%d+')) > now / 1000 then return record end
end

local function mine(now, nonce)
  local record = record_of(now, nonce)
  return record and string.match(record, '^%d+:(%d+)')
end

-- Never shortens. The key's own TTL comes first: it needs no memory, and what follows a write needs none to spare.
local function extend(now, nonce, ttl)
  local record = record_of(now, nonce)
  redis.call('PEXPIRE', LOCK, math.max(redis.call('PTTL', LOCK), tonumber(ttl)))
  local ends = math.floor(now / 1000) + ttl
  if tonumber(string.match(record, '^%d+')) < ends then
    redis.call('HSET', LOCK, nonce, (string.gsub(record, '^%d+', text(ends))))
  end
end

-- Whether this request may pass the queue: its owner is inside already.
local function passes(now, mode) return string.sub(mode, 1, 1) == 'O' and look(now).group == mode end

-- The mode of the owner that is inside, if it is a reentrant lock that is held.
local function inside(now)
  local held = look(now).group
  return held and string.sub(held, 1, 1) == 'O' and held
end

-- Why this request can never be granted beside what is here, if so.
local function misfit(now, mode, queued)
  local wanted = group(mode)
  -- Who waits for a mutex leaves no group.
  local present = look(now).group or (queued and (redis.call('HGET', WAITERS, '#group') or ''))
  if not present or present == wanted then return nil end
  local a, b = string.sub(present, 1, 1), string.sub(wanted, 1, 1)
  if a == 'P' and b == 'P' then return redis.error_reply('LOCKLIMIT ' .. string.sub(present, 3)) end
  local kinds = { [''] = 'mutex', R = 'read-write lock', W = 'read-write lock', O = 'reentrant lock', P = 'semaphore' }
  if kinds[a] ~= kinds[b] then return redis.error_reply('LOCKKIND ' .. kinds[a]) end
end

local function admits(now, mode)
  local held = look(now)
  if not held.group then return mode ~= '' end
  local permits, limit = string.match(mode, '^P(%d+)/(%d+)$')
  if permits then return held.used + permits <= tonumber(limit) end
  return mode ~= 'W' and held.group == mode
end

-- Whether anybody at all could be admitted.
local function open(now)
  local held = look(now)
  return held.group ~= 'W' and held.used < tonumber(string.match(held.group or '', '^P/(%d+)$') or math.huge)
end

local function write(nonce, ends, token, client, mode, info)
  remember(nonce, text(ends) .. ':' .. token .. ':' .. client .. ':' .. mode .. ':' .. info)
end

local function grant(now, holder, mode, info, ttl)
  local held, nonce = look(now), string.sub(holder, 1, 32)
  local first = not held.group
  -- One that has ended under the same nonce, and that counting has not come to yet, is counted still.
  local before = held.next <= math.floor(now / 1000) and redis.call('HGET', LOCK, nonce)
  local counted = before and weight((select(4, fields(before)))) or 0
  -- An owner that enters again keeps its token.
  local token = passes(now, mode) and held.token or next_token(now)
  local ends = math.floor(now / 1000) + ttl
  held.group, held.used, held.token = group(mode), held.used - counted + weight(mode), token
  held.next = math.min(held.next, ends)
  if held.least then held.least = math.min(held.least, ends) end
  write(nonce, ends, token, string.sub(holder, 34, 49), mode, info)
  if first or redis.call('PTTL', LOCK) < tonumber(ttl) then redis.call('PEXPIRE', LOCK, ttl) end
  return token
end

local function remove(now, nonce)
  local record = record_of(now, nonce)
  if not record then return false end
  local held = look(now)
  local _, _, _, mode = fields(record)
  redis.call('HDEL', LOCK, nonce)
  held.used = held.used - weight(mode)
  if held.used <= 0 then
    redis.call('DEL', LOCK)
    seen = { used = 0, next = math.huge }
  else
    redis.call('HSET', LOCK, '#used', text(held.used))
  end
  return true
end

-- Gives a grant another mode, of no more weight; its token and its end stay. Returns whether it is there.
local function change(now, nonce, to)
  local record = record_of(now, nonce)
  if not record then return false end
  local held = look(now)
  local ends, token, client, mode, info = fields(record)
  if weight(mode) < weight(to) or mode == to then return true end
  -- Needs no memory, and what follows a write needs none to spare.
  redis.call('PEXPIRE', LOCK, math.max(redis.call('PTTL', LOCK), 1))
  held.group, held.used = group(to), held.used - weight(mode) + weight(to)
  write(nonce, tonumber(ends), token, client, to, info)
  return true
end

local function ends_in(now)
  local next = look(now).next
  return next < math.huge and math.max(next - math.floor(now / 1000), 0) or -2
end

local function client_of(now, nonce)
  local record = record_of(now, nonce)
  if not record then return nil end
  local _, _, client = fields(record)
  return client
end

-- {nonce, token, ms left, ...} of those of these grants that are there.
local function held_by(now, client, nonces)
  local found = {}
  local records = #nonces > 0 and redis.call('HMGET', LOCK, unpack(nonces)) or {}
  for i, nonce in ipairs(nonces) do
    local ends, token = string.match(records[i] or '', '^(%d+):(%d+):')
    local left = tonumber(ends or 0) - math.floor(now / 1000)
    if left > 0 then
      found[#found + 1], found[#found + 2], found[#found + 3] = nonce, token, left
    end
  end
  return found
end

-- Remembers what those who wait ask for. There are no short ways to be told of a queue.
local function mark(mode) redis.call('HSET', WAITERS, '#group', group(mode)) end

-- Foreign clients share no key with these kinds.
local freed
local function foreign() end
local function waiting() end

-- Fields and values of about so many grants, and the number of the others.
local function holders(most)
  local all = redis.call('HLEN', LOCK)
  -- Beside the grants there are the numbers that are counted.
  if all <= most + 6 then return redis.call('HGETALL', LOCK), 0 end
  local some = redis.call('HSCAN', LOCK, '0', 'COUNT', most + 6)[2]
  local grants = 0
  for i = 1, #some, 2 do
    if string.sub(some[i], 1, 1) ~= '#' then grants = grants + 1 end
  end
  for _, counted in ipairs(redis.call('HMGET', LOCK, '#next', '#group', '#used', '#token', '#scan', '#least')) do
    if counted then all = all - 1 end
  end
  return some, all - grants
end

