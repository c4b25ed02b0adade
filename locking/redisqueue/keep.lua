-- Restarts the TTL of all the keys of a grant, or of none of them. It never takes a key again.
--
-- ARGV[5]  the grant
-- ARGV[6]  TTL in milliseconds
-- returns  1, or 0 when one of the keys is no longer under this grant
for i = 1, keys do
  local ticket = redis.call('ZSCORE', queue[i], owner)
  if not ticket or tonumber(ticket) ~= -tonumber(ARGV[5]) then return 0 end
end
for i = 1, keys do
  redis.call('ZADD', queue[i], now + ARGV[6], '~' .. owner)
  outlive(i, tonumber(ARGV[6]))
end
return 1
