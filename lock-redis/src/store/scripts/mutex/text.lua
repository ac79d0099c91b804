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

-- Tell the short ways that somebody waits: acquire_short.lua by the fence, release_short.lua by the lock.
local FENCE_MARK, LOCK_MARK = 'q', '!'

local function mark()
  local held, last = redis.call('GET', LOCK), redis.call('GET', FENCE)
  if not last then
    redis.call('SET', FENCE, '0q', 'PX', '7200000')
  elseif string.sub(last, -1) ~= 'q' then
    redis.call('SET', FENCE, last .. 'q', 'KEEPTTL')
  end
  if held and is_ours(held) and string.sub(held, -1) ~= '!' then redis.call('APPEND', LOCK, '!') end
end

local function unmark()
  local last = redis.call('GET', FENCE)
  -- Without memory the mark stays; it only sends the next one the long way.
  if last and string.sub(last, -1) == 'q' then redis.pcall('SET', FENCE, string.sub(last, 1, -2), 'KEEPTTL') end
end
