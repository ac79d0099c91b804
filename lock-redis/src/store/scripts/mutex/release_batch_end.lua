end
local answers, keys, args = {}, {}, {}
for i = 1, #ARGV do
  keys[1], args[1] = KEYS[i], ARGV[i]
  local done, answer = pcall(one, keys, args)
  answers[i] = done and type(answer) == 'string' and answer or ''
end
answers[#answers + 1] = ''
return table.concat(answers, '\n')
