-- Lets in whom a grant that was given back made room for. Comes after give.lua.
--
-- KEYS as in base.lua
-- ARGV[1] nonce  [2] client  [3] prefix of the push channels  [4] '1' if the key is shared with foreign clients
-- Reply {nonce, 1, nonce, token, claim ms, ...} with those of the next holders that are of the same client;
--      {nonce, 0, why} if it was not held, with the text of a release by force, or ''
return { ARGV[1], 1, unpack(promote(now, ARGV[3], ARGV[2], ARGV[4])) }
