-- Removes the only owner of a key, under its grant and before its deadline, which the client has checked:
-- the release of a lease begins with this text. Most end here, before the functions of queue.lua are made.
if ARGV[2] == '1' then
  local found = redis.call('ZRANGE', KEYS[1], 0, 2, 'WITHSCORES')
  if found[1] == ARGV[1] and found[2] == '-' .. ARGV[5] and not found[5] then return redis.call('DEL', KEYS[1]) end
end
