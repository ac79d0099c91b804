end
local give_mutex = one
