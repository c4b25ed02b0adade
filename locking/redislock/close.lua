-- Removes the only owner of a key, under its grant and before its deadline, which the client has checked:
-- the release of a lease begins with this text. Most end here, before the functions of queue.lua are made.
if ARGV[2] == '1' then
  if redis.call('ZCARD', KEYS[1]) == 2 and redis.call('ZSCORE', KEYS[1], ARGV[1]) == '-' .. ARGV[5] then -- and its deadline
    return redis.call('DEL', KEYS[1])
  end
end
