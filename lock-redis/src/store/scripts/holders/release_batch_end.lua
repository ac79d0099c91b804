end
-- Comes after queues_of_batch.lua, begin_one.lua and release_short.lua: releases many grants for whose room nobody waits.
--
-- KEYS[2i-1] lock  [2i] queue
-- ARGV[i] nonce
-- Reply: one text with a line for each, in their order: <nonce>+ if it is released, <nonce>? if somebody waits or it is not there or not
--      plain: then release.lua decides; nothing if it failed. Unless it is released nothing was changed
local answers = {}
if ARGV[1] then
  local time = redis.call('TIME')
  local queues, keys, args = queues_of(KEYS, #ARGV), {}, { [6] = time[1] * 1000 + math.floor(time[2] / 1000) }
  for i = 1, #ARGV do
    keys[1], keys[2], args[1] = KEYS[2 * i - 1], queues[i], ARGV[i]
    local done, answer = pcall(one, keys, args)
    answers[i] = done and ARGV[i] .. (answer and '+' or '?') or ''
  end
end
answers[#answers + 1] = ''
return table.concat(answers, '\n')
