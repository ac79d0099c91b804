end
-- Comes after batch_begin.lua and acquire_short.lua: takes many free locks for which nobody waits. What fails for one of them is
-- nothing to the others.
--
-- KEYS[2i-1] lock  [2i] fence
-- ARGV[2i-1], [2i] as acquire_short.lua has [1] and [2]
-- Reply: one text with a line for each, in their order: its own reply, or nothing if it failed: then it is to be asked for by
--      itself, which tells why
local answers = {}
if ARGV[1] then
  local time = redis.call('TIME')
  local keys, args = {}, { '', '', time[1] .. string.sub('00000' .. time[2], -6) }
  for i = 1, #ARGV / 2 do
    keys[1], keys[2], args[1], args[2] = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i - 1], ARGV[2 * i]
    local done, answer = pcall(one, keys, args)
    answers[i] = done and type(answer) == 'string' and answer or ''
  end
end
answers[#answers + 1] = ''
return table.concat(answers, '\n')
