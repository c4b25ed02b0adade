-- Takes one key that has no owner, as grant in queue.lua does: take.lua begins with this text. Most
-- requests end here, before the functions of queue.lua are made.
if ARGV[2] == '1' and redis.call('EXISTS', KEYS[1]) == 0 then
  local time, ttl = redis.call('TIME'), ARGV[5]
  local fence = math.max(time[1] * 1000000 + time[2], (tonumber(redis.call('GET', KEYS[2])) or 0) + 1)
  local digits = string.format('%.0f', fence)
  redis.call('SET', KEYS[2], digits)
  redis.call('ZADD', KEYS[1], '-' .. digits, ARGV[1], time[1] * 1000 + math.floor(time[2] / 1000) + ttl, '~' .. ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ttl)
  return fence
end
