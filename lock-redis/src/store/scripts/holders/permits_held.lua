-- The number of permits that are held. Comes after many.lua.
--
-- KEYS as in base.lua
-- Reply {the lock's key, number, 1 if what has ended may be counted still: then ask again; 2 if some of it has ended since it was
--      looked at, which may have been long ago: then another count says more, once}
local now = now_us()
local used = look(now).used or 0
if seen.least and stuck then
  return redis.error_reply('OOM no memory for counting the permits that have ended')
end
local ended = seen.next <= math.floor(now / 1000)
return { LOCK, text(used), unfinished() and 1 or ended and 2 or 0 }
