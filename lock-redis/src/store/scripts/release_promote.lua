-- Lets in whom a release made room for. Comes after release.lua and queue.lua.
--
-- KEYS, ARGV and reply as in release.lua
return replied(ARGV[1], promote(now, ARGV[3], ARGV[2], ARGV[4]))
