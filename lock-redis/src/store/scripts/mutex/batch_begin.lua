-- Many runs of a short way as one script: what follows, up to batch_end.lua, is one of them, with its own keys and arguments.
local function one(KEYS, ARGV)
