end
local acquire = one
