-- What a mutex holds: one grant at most. Comes after what keeps it: text.lua, or redisson.lua where it is shared with Redisson.
--
-- <nonce 32>:<client 16>:<holder JSON>:<token>, with the lease as the key's TTL, and ! at its end if others wait. The token
-- is sought in the last 24 bytes: from the beginning each byte of the JSON would be tried.

-- The token, if the lock is held under this nonce.
local function mine(now, nonce)
  local held = kept()
  if held and string.sub(held, 1, 32) == nonce then return string.match(held, '(%d+)!?$', -24) end
end

-- Never shortens: what asks for it may be a late copy of a request whose lease was extended since.
local function extend(now, nonce, ttl)
  if redis.call('PTTL', LOCK) < tonumber(ttl) then redis.call('PEXPIRE', LOCK, ttl) end
end

local function inside() end
local function unfinished() return false end
local function passes() return false end

-- Those who wait at a key may wait for another kind of lock.
local function misfit(now, mode, queued)
  local group = queued and redis.call('HGET', WAITERS, '#group')
  if group then return redis.error_reply('LOCKKIND ' .. group) end
end

local function open() return redis.call('EXISTS', LOCK) == 0 end
local function admits(now, mode) return mode == '' and open() end

-- `more`: whether others wait behind this holder
local function grant(now, holder, mode, info, ttl, more)
  local token = next_token(now)
  keep(holder .. ':' .. info .. ':' .. token .. (more and LOCK_MARK or ''), ttl)
  return token
end

local freed -- the nonce of the grant that this run has ended

local function remove(now, nonce)
  local held = kept()
  if not held or string.sub(held, 1, 32) ~= nonce then return false end
  forget()
  freed = nonce
  return true
end

local function ends_in() return redis.call('PTTL', LOCK) end

-- The client of this grant.
local function client_of(now, nonce)
  local held = kept()
  if held and string.sub(held, 1, 32) == nonce then return string.sub(held, 34, 49) end
end

-- {nonce, token, ms left} of what this client holds.
local function held_by(now, client)
  local held = kept() or ''
  if string.sub(held, 34, 49) ~= client then return {} end
  return { string.sub(held, 1, 32), string.match(held, '(%d+)!?$', -24) or '0', redis.call('PTTL', LOCK) }
end

local function holders() return { kept() or '', redis.call('PTTL', LOCK) }, 0 end

