-- Releases many locks for which nobody waits, each as release_short.lua does it, but all of them by one command.
--
-- KEYS[i] lock
-- ARGV[i] nonce
-- Reply: one text with a line for each, in their order: as that of release_short.lua, or nothing if it failed
local answers, released = {}, {}
for i, nonce in ipairs(ARGV) do
  local held = redis.pcall('GET', KEYS[i])
  if type(held) == 'table' then
    answers[i] = ''
  elseif held and string.sub(held, 1, 32) == nonce and string.sub(held, -1) ~= '!' then
    answers[i], released[#released + 1] = nonce .. '+', KEYS[i]
  else
    answers[i] = nonce .. '?'
  end
end
if released[1] then redis.call('DEL', unpack(released)) end
answers[#answers + 1] = ''
return table.concat(answers, '\n')
