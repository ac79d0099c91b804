end
-- Comes after acquire.lua and release.lua as functions: many acquisitions and releases at one server of a quorum, in the order in
-- which they were asked for. What fails for one of them is nothing to the others.
--
-- KEYS two for each acquisition, three for each release
-- ARGV[1] a letter for each of them: a, or r  [2 ...] six arguments for each acquisition, seven for each release
-- Reply {text, ...}: the reply of each, or nothing if it failed: then it is to be asked for by itself, which tells why
local answers, keys, args, key, arg = {}, {}, {}, 0, 1
for letter in string.gmatch(ARGV[1] or '', '.') do
  local run, more_keys, more_args = acquire, 2, 6
  if letter == 'r' then run, more_keys, more_args = one, 3, 7 end
  for i = 1, more_keys do keys[i] = KEYS[key + i] end
  for i = 1, more_args do args[i] = ARGV[arg + i] end
  key, arg = key + more_keys, arg + more_args
  local done, answer = pcall(run, keys, args)
  answers[#answers + 1] = done and answer or ''
end
return answers
