-- How a mutex is kept that is shared with Redisson's RLock: as a hash of who is inside, and how often.
--
-- KEYS[1] hash: <nonce 32>:<client 16> -> 1, where Redisson has <uuid>:<thread> -> count; # -> as in one.lua, if it is ours

-- On which Redisson's waiters are told of a lock that was released.
local CHANNEL = 'redisson_lock__channel:' .. (string.find(LOCK, '{', 1, true) and LOCK or '{' .. LOCK .. '}')

local function kept() return redis.call('HGET', LOCK, '#') end

local function keep(what, ttl)
  redis.call('HSET', LOCK, string.sub(what, 1, 49), 1, '#', what)
  redis.call('PEXPIRE', LOCK, ttl)
end

local heard -- by how many clients of Redisson's it was heard that this run has freed the key
local function forget()
  redis.call('DEL', LOCK)
  -- Without the right to tell them it is free all the same.
  local told = redis.pcall('PUBLISH', CHANNEL, '0')
  heard = type(told) == 'number' and told or 0
end

-- Who holds the key, if it is a client of Redisson's.
local function foreign() return not kept() and redis.call('HGETALL', LOCK)[1] end

-- The number of Redisson's clients that wait: they listen.
local function waiting()
  if heard then return heard end
  -- Without the right to ask, as if nobody waited.
  local reply = redis.pcall('PUBSUB', 'NUMSUB', CHANNEL)
  return reply.err and 0 or reply[2]
end

-- There are no short ways to be told of a queue.
local LOCK_MARK = ''
local function mark() end
