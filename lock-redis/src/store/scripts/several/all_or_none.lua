-- Takes several locks at once: all of them, or none. Comes after raise_tokens.lua and the ways to take and to release one, as
-- functions: those of a mutex, and those of the other kinds.
--
-- KEYS[5i-4] lock  [5i-3] queue  [5i-2] waiters  [5i-1] tokens  [5i] forced, as in base.lua
-- ARGV[5i-4] nonce  [5i-3] client  [5i-2] TTL ms  [5i-1] holder JSON  [5i] mode, as in acquire.lua
-- Reply {<first nonce>, 1, token, ms until the grant ends, token, ms, ...} or {<first nonce>, 0} if one of them is held, {<first nonce>, 2}
--      if one of them is to be asked for by itself, which tells why. Then none is held that was not before.
local first, now = raise_tokens(KEYS[4], #ARGV / 5)

local function of(i)
  local keys = { unpack(KEYS, 5 * i - 4, 5 * i) }
  return keys, unpack(ARGV, 5 * i - 4, 5 * i)
end

local function take(i)
  if not first then return 2 end
  local keys, nonce, client, ttl, info, mode = of(i)
  local token = string.format('%.0f', first + i - 1)
  if mode ~= '' then
    local told = take_holders(keys, { nonce, client, ttl, info, '', '', '', '', mode, token, math.floor(now / 1000) })
    return told[2] or 2, told[3], told[4]
  end
  local told = take_mutex({ keys[1], keys[2], keys[4] }, { nonce .. ':' .. client .. ':' .. info .. ':', ttl, token })
  local sign = type(told) == 'string' and string.sub(told, 33, 33)
  if sign == '+' then return 1, string.sub(told, 34), ttl end
  return sign == '-' and 0 or 2
end

-- Nobody can wait yet for what this run took. If an earlier sending of the request took it, the client lets waiters in afterwards.
local function give(i)
  local keys, nonce, client, _, _, mode = of(i)
  if mode == '' then give_mutex(keys, { nonce }) else give_holders(keys, { nonce, client }) end
end

local reply = { ARGV[1], 1 }
for i = 1, #ARGV / 5 do
  local done, status, token, ms = pcall(take, i)
  if not done or status ~= 1 then
    for j = 1, i do pcall(give, j) end
    return { ARGV[1], done and status or 2 }
  end
  reply[2 * i + 1], reply[2 * i + 2] = token, ms
end
return reply
