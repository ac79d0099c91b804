-- Who holds the lock and who waits for it, as many of each as are listed.
--
-- KEYS as in base.lua
-- ARGV[1] how many are listed at most
-- Reply {the lock's key, now µs, what holds it, number of other holders, {member, ticket, ...}, what queue.lua keeps of each of
--      these, number of other waiters}; of a mutex what holds it is {value or '', ms until it ends}, of the other kinds
--      {field, value, ...} as in many.lua, which may be more than are listed
local most = tonumber(ARGV[1])
local held, others = holders(most)
local queue, nonces, entries = redis.call('ZRANGE', QUEUE, 0, most - 1, 'WITHSCORES'), {}, {}
for i = 1, #queue, 2 do nonces[#nonces + 1] = string.sub(queue[i], 1, 32) end
if nonces[1] then entries = redis.call('HMGET', WAITERS, unpack(nonces)) end
for i = 1, #nonces do entries[i] = entries[i] or '' end
return { LOCK, text(now_us()), held, others, queue, entries, math.max(redis.call('ZCARD', QUEUE) - #nonces, 0) }
