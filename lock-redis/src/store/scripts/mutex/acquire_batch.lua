-- Takes many free locks for which nobody waits, each as acquire_short.lua does it, but with one token, and one look at all queues.
-- Comes after raise_tokens.lua and queues_of_batch.lua. From the first lock on no command ends the script: what fails for one is nothing to
-- the others.
--
-- KEYS[2i-1] lock  [2i] queue  [last] tokens
-- ARGV[2i-1], [2i] as acquire_short.lua has [1] and [2]
-- Reply: one text with a line for each, in their order: as that of acquire_short.lua, or nothing if it failed: then it is to be asked for
--      by itself, which tells why
local call, sub, number = redis.pcall, string.sub, #ARGV / 2

local function answer(lock, queue, what, ttl, token)
  local nonce = sub(what, 1, 32)
  local taken = (not queue or call('EXISTS', queue) == 0) and call('SET', lock, what .. token, 'NX', 'PX', ttl)
  if taken and taken.ok then return nonce .. '+' .. token end
  local held = call('GET', lock)
  if type(held) == 'table' then return '' end
  if not held then return nonce .. '?' end
  if sub(held, 1, 32) ~= nonce then return nonce .. '-' end
  local left = call('PTTL', lock)
  if type(left) == 'number' and left < tonumber(ttl) then call('PEXPIRE', lock, ttl) end
  return nonce .. '+' .. (string.match(held, '(%d+)!?$', -24) or '')
end

local answers = {}
local token = number > 0 and raise_tokens(KEYS[2 * number + 1], 1)
local queues = token and queues_of(KEYS, number)
token = token and string.format('%.0f', token)
for i = 1, number do
  answers[i] = token and answer(KEYS[2 * i - 1], queues[i], ARGV[2 * i - 1], ARGV[2 * i], token) or ''
end
answers[#answers + 1] = ''
return table.concat(answers, '\n')
