-- Deletes a lock that the owner holds.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- returns  1, or 0 when the lock is free or another owner's
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
