end
-- Comes after batch_begin.lua and acquire_short.lua: takes many locks that leave room and for which nobody waits. What fails for one
-- of them is nothing to the others.
--
-- KEYS[3i-2] lock  [3i-1] queue  [3i] fence
-- ARGV[5i-4] nonce  [5i-3] client  [5i-2] TTL ms  [5i-1] holder JSON  [5i] mode
-- Reply: one text with a line for each, in their order: <nonce>+<token> if it is held under this nonce now, <nonce>? if it is held by
--      others, waited for or not plain: then acquire.lua decides; nothing if it failed. Unless it is held nothing was changed
local answers = {}
for i = 1, #ARGV / 5 do
  local keys = { KEYS[3 * i - 2], KEYS[3 * i - 1], '', KEYS[3 * i] }
  local nonce, client, ttl, info, mode = unpack(ARGV, 5 * i - 4, 5 * i)
  local done, answer = pcall(one, keys, { nonce, client, ttl, info, [10] = mode })
  answers[i] = done and nonce .. (answer and '+' .. answer[3] or '?') or ''
end
answers[#answers + 1] = ''
return table.concat(answers, '\n')
