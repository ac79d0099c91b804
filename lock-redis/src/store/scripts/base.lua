-- Shared by every script that can hand a lock over. Comes first in each of them, then what holds the lock: mutex/one.lua
-- for the mutex, holders/many.lua for the other kinds.
--
-- KEYS[1] lock     what is held: see one.lua and many.lua
-- KEYS[2] queue    sorted set: <nonce 32>:<client 16>, scored by the ticket (µs at which the waiter first came)
-- KEYS[3] waiters  hash, see queue.lua
-- KEYS[4] tokens   string: the last token of all locks that share this counter
-- KEYS[5] forced   string: <nonce>:<text>, why the last grant was freed by force
--
-- Time is the server's. Under memory pressure every write that needs memory fails from a script's first write on or
-- not at all; the scripts therefore free first and grant afterwards, and a grant that fails leaves the waiter queued.

local LOCK, QUEUE, WAITERS, TOKENS, FORCED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local function text(number) return string.format('%.0f', number) end

local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The last token that this run has given; and whether it gives several, which are noted together at its end.
local given, several

-- A token is remembered until two hours after the later of itself and now.
local function note_token(now)
  redis.call('SET', TOKENS, text(given), 'PX', text(math.ceil((given - now) / 1000) + 7200000))
end

local function last_token() return string.match(redis.call('GET', TOKENS) or '', '^%d+') or '0' end

-- max(last + 1, now). The first is noted at once, which shows that there is memory for the others.
local function next_token(now)
  local first = not given
  given = math.max((given or tonumber(last_token())) + 1, now)
  if first or not several then note_token(now) end
  return text(given)
end
