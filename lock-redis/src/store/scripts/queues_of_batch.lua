-- The queues of so many locks, which are every other key; none if nobody waits in any of them.
local function queues_of(keys, locks)
  local queues = {}
  for i = 1, locks do queues[i] = keys[2 * i] end
  return redis.call('EXISTS', unpack(queues)) > 0 and queues or {}
end

