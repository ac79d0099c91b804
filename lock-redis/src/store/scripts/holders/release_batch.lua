-- Releases many grants for whose room nobody waits, each as release_short.lua does it, but those that were the last ones of their locks
-- by one command. Comes after queues_of_batch.lua. What fails for one of them is nothing to the others.
--
-- KEYS[2i-1] lock  [2i] queue
-- ARGV[i] nonce
-- Reply: one text with a line for each, in their order: <nonce>+ if it is released, <nonce>? if somebody waits or it is not there or not
--      plain: then release.lua decides; nothing if it failed. Unless it is released nothing was changed
local call, answers = redis.pcall, {}
local empty, last = {}, {} -- the locks that are left without a grant, and the numbers of the requests that left them so

local function answer(i, queue, nonce, ms)
  local lock = KEYS[2 * i - 1]
  local known = call('HMGET', lock, nonce, '#next', '#used')
  local record, next, used = known[1], tonumber(known[2]), tonumber(known[3])
  if known.err then return '' end
  -- No grant has ended, this one included.
  if not record or not next or not used or next <= ms or (queue and call('EXISTS', queue) ~= 0) then return nonce .. '?' end
  local left = used - (string.match(record, '^%d+:%d+:%x+:P(%d+)/') or 1)
  if left <= 0 then
    empty[#empty + 1], last[#last + 1] = lock, i
  else
    -- A server that takes no writes refuses the first one.
    if type(call('HDEL', lock, nonce)) == 'table' then return '' end
    call('HSET', lock, '#used', string.format('%.0f', left))
  end
  return nonce .. '+'
end

if ARGV[1] then
  local time = redis.call('TIME')
  local queues, ms = queues_of(KEYS, #ARGV), time[1] * 1000 + math.floor(time[2] / 1000)
  for i, nonce in ipairs(ARGV) do answers[i] = answer(i, queues[i], nonce, ms) end
  if empty[1] and type(call('DEL', unpack(empty))) == 'table' then
    for _, i in ipairs(last) do answers[i] = '' end
  end
end
answers[#answers + 1] = ''
return table.concat(answers, '\n')
