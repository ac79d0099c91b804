-- What follows, up to a file that begins with its end, is a function: one of many runs of a script, with its own keys and arguments.
local function one(KEYS, ARGV)
