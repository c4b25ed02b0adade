-- Restarts the TTL of a lock that the owner holds.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  TTL in milliseconds
-- returns  1, or 0 when the lock is free or another owner's
--
-- Never SET: to take the lock again would hide that it was free in between.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
