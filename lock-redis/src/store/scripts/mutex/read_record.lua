-- Reads the record beside a mutex.
--
-- KEYS[1] record, as in record.lua
-- ARGV[1] a text that the reply begins with
-- Reply {text, record}, or {text} if there is none
local stored = redis.call('GET', KEYS[1])
return stored and { ARGV[1], stored } or { ARGV[1] }
