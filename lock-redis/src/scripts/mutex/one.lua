-- What a mutex holds: one grant at most.
--
-- KEYS[1] string: <nonce 32>:<client 16>:<holder JSON>:<token>, with the lease as its TTL, and ! at its end if others
--         wait; any other text is a client of another library

-- The token, if the lock is held under this nonce.
local function mine(now, nonce)
  local held = redis.call('GET', LOCK)
  if held and string.sub(held, 1, 32) == nonce then return string.match(held, '(%d+)!?$') end
end

-- Never shortens: what asks for it may be a late copy of a request whose lease was extended since.
local function extend(now, nonce, ttl)
  if redis.call('PTTL', LOCK) < tonumber(ttl) then redis.call('PEXPIRE', LOCK, ttl) end
end

local function inside() end
local function passes() return false end

-- Those who wait at a key may wait for another kind of lock.
local function misfit(now, mode, queued)
  local group = queued and redis.call('HGET', WAITERS, '#group')
  if group then return redis.error_reply('LOCKKIND ' .. group) end
end

local function open() return redis.call('EXISTS', LOCK) == 0 end
local function admits(now, mode) return mode == '' and open() end

-- `more`: whether others wait behind this holder
local function grant(now, holder, mode, card, ttl, more)
  local token = next_token(now, more and 'q')
  redis.call('SET', LOCK, holder .. ':' .. card .. ':' .. token .. (more and '!' or ''), 'PX', ttl)
  return token
end

local function remove(now, nonce)
  local held = redis.call('GET', LOCK)
  return held and string.sub(held, 1, 32) == nonce and redis.call('DEL', LOCK) == 1
end

local function ends_in() return redis.call('PTTL', LOCK) end

-- The client of this grant.
local function client_of(now, nonce)
  local held = redis.call('GET', LOCK)
  if held and string.sub(held, 1, 32) == nonce then return string.sub(held, 34, 49) end
end

-- {nonce, token, ms left} of what this client holds.
local function held_by(now, client)
  local held = redis.call('GET', LOCK) or ''
  if string.sub(held, 34, 49) ~= client then return {} end
  return { string.sub(held, 1, 32), string.match(held, '(%d+)!?$') or '0', redis.call('PTTL', LOCK) }
end

-- Tells the short ways that somebody waits: take.lua by the fence, drop.lua by the lock.
local function mark()
  local held, last = redis.call('GET', LOCK), redis.call('GET', FENCE)
  if not last then
    redis.call('SET', FENCE, '0q', 'PX', '7200000')
  elseif string.sub(last, -1) ~= 'q' then
    redis.call('SET', FENCE, last .. 'q', 'KEEPTTL')
  end
  local ours = held and string.sub(held, 33, 33) == ':' and string.sub(held, 50, 51) == ':{'
  if ours and string.sub(held, -1) ~= '!' then redis.call('APPEND', LOCK, '!') end
end

local function unmark()
  local last = redis.call('GET', FENCE)
  -- Without memory the mark stays; it only sends the next one the long way.
  if last and string.sub(last, -1) == 'q' then redis.pcall('SET', FENCE, string.sub(last, 1, -2), 'KEEPTTL') end
end

local function holders() return { redis.call('GET', LOCK) or '', redis.call('PTTL', LOCK) } end

