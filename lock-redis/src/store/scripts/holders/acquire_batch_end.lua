end
-- Comes after raise_tokens.lua, queues_of_batch.lua, begin_one.lua and acquire_short.lua: takes many locks that leave room and for which
-- nobody waits. What fails for one of them is nothing to the others.
--
-- KEYS[2i-1] lock  [2i] queue  [last] tokens
-- ARGV[5i-4] nonce  [5i-3] client  [5i-2] TTL ms  [5i-1] holder JSON  [5i] mode
-- Reply: one text with a line for each, in their order: <nonce>+<token> if it is held under this nonce now, <nonce>? if it is held by
--      others, waited for or not plain: then acquire.lua decides; nothing if it failed. Unless it is held nothing was changed
--      but the counter
local answers, number = {}, #ARGV / 5
local first, now
if number > 0 then first, now = raise_tokens(KEYS[2 * number + 1], number) end
if first then
  local queues, keys, args = queues_of(KEYS, number), {}, { [11] = math.floor(now / 1000) }
  for i = 1, number do
    keys[1], keys[2] = KEYS[2 * i - 1], queues[i]
    args[1], args[2], args[3], args[4], args[9] = unpack(ARGV, 5 * i - 4, 5 * i)
    args[10] = string.format('%.0f', first + i - 1)
    local done, answer = pcall(one, keys, args)
    answers[i] = done and args[1] .. (answer and '+' .. answer[3] or '?') or ''
  end
else
  for i = 1, number do answers[i] = '' end
end
answers[#answers + 1] = ''
return table.concat(answers, '\n')
