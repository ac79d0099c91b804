-- Comes after acquire_free.lua, which has granted what can be had. What is left to acquire.lua is left to it here, too: the queue of
-- a lock that could be had otherwise, another kind of lock, grants that may have ended.
return { nonce, (wrong or unfinished() or admits(now, mode)) and 2 or 0 }
end
local take_holders = one
