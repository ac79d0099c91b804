-- Gives the lock back if it is held under this nonce, and hands it to the next waiter.
--
-- KEYS as in queue.lua
-- ARGV[1] nonce  [2] client  [3] prefix of the push channels  [4] '1' if the key is shared with foreign clients
-- Reply {nonce, 1} or, if the next holder is of the same client, {nonce, 1, its nonce, token, claim ms};
--      {nonce, 0, why} if it was not held
local done, first, token, claim = free(ARGV[1], ARGV[3], ARGV[2], ARGV[4])
if not done then return { ARGV[1], 0, why(ARGV[1]) } end
if first and string.sub(first, 34, 49) == ARGV[2] then return { ARGV[1], 1, string.sub(first, 1, 32), token, claim } end
return { ARGV[1], 1 }
