-- The beginning of a function, which lasts up to a file that begins with its end: one of many runs of a script, with its own keys and
-- arguments.
local function one(KEYS, ARGV)
