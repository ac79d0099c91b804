end
local take_mutex = one
