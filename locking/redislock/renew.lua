-- Restarts the TTL of all the locks of a grant, or of none of them.
--
-- KEYS     the locks
-- ARGV[1]  the grant: "fence:owner", exactly as acquire.lua wrote it
-- ARGV[2]  TTL in milliseconds
-- returns  1, or 0 when one of the locks is no longer under this grant
--
-- Never SET: to restore a lock that has expired would hide that another owner may
-- have held it in between. The fence is compared as well as the owner, so that a
-- delayed duplicate of the acquire request cannot revive a grant.
for i = 1, #KEYS do
  if redis.call('GET', KEYS[i]) ~= ARGV[1] then return 0 end
end
for i = 1, #KEYS do redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
return 1
