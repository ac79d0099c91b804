-- Leaves nothing of an attempt: neither its place in the queue nor its grant.
--
-- KEYS, ARGV and reply as in release.lua
leave(ARGV[1] .. ':' .. ARGV[2])
local done, first, token, claim = free(ARGV[1], ARGV[3], ARGV[2], ARGV[4])
if not done then return { ARGV[1], 0, '' } end
if first and string.sub(first, 34, 49) == ARGV[2] then return { ARGV[1], 1, string.sub(first, 1, 32), token, claim } end
return { ARGV[1], 1 }
