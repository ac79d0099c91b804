-- Replies the name of the server's own compare-and-delete, if it has one that this user may call, or ''. Nothing is called, and so
-- nothing is denied: servers before 7.0 cannot tell, and have none.
--
-- ARGV[1] a key of the kind that is to be deleted
local function may(...)
  local told, allowed = pcall(redis.acl_check_cmd, ...)
  return told and allowed
end
if not may('ECHO', '') then return '' end
if may('DELIFEQ', ARGV[1], '') then return 'DELIFEQ' end
if may('DELEX', ARGV[1], 'IFEQ', '') then return 'DELEX' end
return ''
