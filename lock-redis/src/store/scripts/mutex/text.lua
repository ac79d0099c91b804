-- How a mutex is kept: as a text, which every library respects that does SET key value NX PX. Any other text than ours is a
-- client of such a library.
--
-- KEYS[1] string: as in one.lua

local function kept() return redis.call('GET', LOCK) end
local function keep(what, ttl) redis.call('SET', LOCK, what, 'PX', ttl) end
local function forget() redis.call('DEL', LOCK) end

local function is_ours(held) return string.sub(held, 33, 33) == ':' and string.sub(held, 50, 51) == ':{' end

-- Who holds the key, if it is a foreign client.
local function foreign()
  local held = kept()
  return held and not is_ours(held) and string.sub(held, 1, 64)
end

-- The number of foreign clients that wait, if it is known.
local function waiting() end

-- Tells release_short.lua that somebody waits.
local LOCK_MARK = '!'

local function mark()
  local held = redis.call('GET', LOCK)
  if held and is_ours(held) and string.sub(held, -1) ~= LOCK_MARK then redis.call('APPEND', LOCK, LOCK_MARK) end
end
