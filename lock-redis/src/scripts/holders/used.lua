-- The number of permits that are held. Comes after many.lua.
--
-- KEYS as in base.lua
-- Reply {the lock's key, number, 1 if what has ended may be counted still: then ask again}
local used = look(now_us()).used or 0
if seen.least and stuck then
  return redis.error_reply('OOM no memory for counting the permits that have ended')
end
return { LOCK, text(used), unfinished() and 1 or 0 }
