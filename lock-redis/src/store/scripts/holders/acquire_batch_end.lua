end
-- Comes after raise_tokens.lua, queues_of_batch.lua, begin_one.lua and acquire_short.lua: takes many locks that leave room and for which
-- nobody waits. If all of them are free, which one look at all keys tells, each costs two commands. From the first lock on no command
-- ends the script: what fails for one of them is nothing to the others.
--
-- KEYS[2i-1] lock  [2i] queue  [last] tokens
-- ARGV[5i-4] nonce  [5i-3] client  [5i-2] TTL ms  [5i-1] holder JSON  [5i] mode
-- Reply: one text with a line for each, in their order: <nonce>+<token> if it is held under this nonce now, <nonce>? if it is held by
--      others, waited for or not plain: then acquire.lua decides; nothing if it failed. Unless it is held nothing was changed
--      but the counter
local answers, number = {}, #ARGV / 5
local first, now
if number > 0 then first, now = raise_tokens(KEYS[2 * number + 1], number) end
local ms = now and math.floor(now / 1000)

-- Takes a lock that does not exist; returns whether that was done.
local function take(lock, nonce, client, ttl, info, mode, token)
  local permits, limit = string.match(mode, '^P(%d+)/(%d+)$')
  local ends = string.format('%.0f', ms + ttl)
  local added = redis.pcall('HSET', lock,
    nonce, ends .. ':' .. token .. ':' .. client .. ':' .. mode .. ':' .. info,
    '#next', ends, '#group', limit and 'P/' .. limit or mode, '#used', permits or '1', '#token', token)
  return type(added) ~= 'table' and type(redis.pcall('PEXPIRE', lock, ttl)) ~= 'table'
end

if first then
  local free = redis.call('EXISTS', unpack(KEYS, 1, 2 * number)) == 0
  local queues, taken = free and {} or queues_of(KEYS, number), {}
  local keys, args = {}, { [11] = ms }
  for i = 1, number do
    local lock, token = KEYS[2 * i - 1], string.format('%.0f', first + i - 1)
    local nonce, client, ttl, info, mode = unpack(ARGV, 5 * i - 4, 5 * i)
    if free and not taken[lock] then
      taken[lock] = true
      answers[i] = take(lock, nonce, client, ttl, info, mode, token) and nonce .. '+' .. token or ''
    else
      keys[1], keys[2] = lock, queues[i]
      args[1], args[2], args[3], args[4], args[9], args[10] = nonce, client, ttl, info, mode, token
      local done, answer = pcall(one, keys, args)
      answers[i] = done and nonce .. (answer and '+' .. answer[3] or '?') or ''
    end
  end
else
  for i = 1, number do answers[i] = '' end
end
answers[#answers + 1] = ''
return table.concat(answers, '\n')
