-- Lets in whom a grant that was given back made room for. Comes after give.lua.
--
-- KEYS as in base.lua
-- ARGV[1] nonce  [2] client  [3] prefix of the push channels  [4] '1' if the key is shared with foreign clients
-- Reply {nonce, 1, nonce, token, claim ms, ...} with those of the next holders that are of the same client, 2 instead of 1
--      if there is more to do than one run may: then the client goes on with a poke;
--      {nonce, 0, why} if it was not held, with the text of a release by force, or ''
return replied(ARGV[1], promote(now, ARGV[3], ARGV[2], ARGV[4]))
