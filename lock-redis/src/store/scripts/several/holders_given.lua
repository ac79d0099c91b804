end
local give_holders = one
