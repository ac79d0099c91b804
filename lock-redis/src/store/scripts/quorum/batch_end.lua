end
-- Comes after acquire.lua and release.lua as functions: many acquisitions and releases at one server of a quorum, in the order in
-- which they were asked for. What fails for one of them is nothing to the others. The usual ones, of a lock that is free and of a grant for
-- whose lock nobody waits, are done here, in as few calls as can be; everything else is left to these functions.
--
-- KEYS two for each acquisition, three for each release
-- ARGV[1] a letter for each of them: a, or r  [2 ...] six arguments for each acquisition, seven for each release
-- Reply {text, ...}: the reply of each, or nothing if it failed or was not carried out: then it is to be asked for by itself, which tells why
local call, sub = redis.pcall, string.sub
local MOST_GONE = 512 -- clients that are gone and that one run passes over; another 64 may follow them

local letters, waiters, key = ARGV[1] or '', {}, 0
for letter in string.gmatch(letters, '.') do
  key = key + (letter == 'r' and 3 or 2)
  if letter == 'r' then waiters[#waiters + 1] = KEYS[key] end
end
-- Whether somebody may wait for one of the locks that are released.
local found = waiters[1] and call('EXISTS', unpack(waiters)) or 0
local awaited = type(found) ~= 'number' or found > 0
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)

local function usual_acquire(lock, queue, nonce, round, ttl, info, client, waited)
  local taken = call('SET', lock, nonce .. ':' .. round .. ':' .. now .. ':' .. info, 'NX', 'PX', ttl)
  if not taken or not taken.ok then return end
  if client ~= '' and waited ~= '0' then call('ZREM', queue, client) end
  return nonce .. '+'
end

local function usual_release(lock, nonce, round, why, _, stops)
  local held = not awaited and why == '' and stops == '' and call('GET', lock)
  if type(held) ~= 'string' or sub(held, 1, 32) ~= nonce then return end
  local since = tonumber(string.match(held, ':(%d+):', 33) or '')
  if not since or since > tonumber(round) then return end
  -- A server that refuses writes begins a script all the same.
  return type(call('DEL', lock)) == 'number' and nonce .. '+0'
end

local answers, gone = {}, 0
local arg = 1
key = 0
for letter in string.gmatch(letters, '.') do
  local answer
  if letter == 'r' then
    answer = usual_release(KEYS[key + 1], unpack(ARGV, arg + 1, arg + 5))
    -- One that tells nobody (it has no channels) passes over nobody.
    if not answer and (gone < MOST_GONE or ARGV[arg + 4] == '') then
      local done, told, passed = pcall(one, { unpack(KEYS, key + 1, key + 3) }, { unpack(ARGV, arg + 1, arg + 7) })
      answer, gone = done and told, gone + (done and passed or 0)
    end
    key, arg = key + 3, arg + 7
  else
    answer = usual_acquire(KEYS[key + 1], KEYS[key + 2], unpack(ARGV, arg + 1, arg + 6))
    if not answer then
      local done, told = pcall(acquire, { unpack(KEYS, key + 1, key + 2) }, { unpack(ARGV, arg + 1, arg + 6) })
      -- It may wait now for what is released behind it.
      answer, awaited = done and told, true
    end
    key, arg = key + 2, arg + 6
  end
  answers[#answers + 1] = answer or ''
end
return answers
