-- Takes all the locks for one owner, or none of them.
--
-- KEYS     the locks, then the fence counters of their buckets, then the marks
-- ARGV[1]  owner: random, unique to this acquisition
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  how many of KEYS are locks
-- ARGV[4]  how many of KEYS are marks: one for each lock if the owner waits for a message of the release, else 0
-- ARGV[5]  how long a mark lasts, in milliseconds
-- returns  the fence, or 0 when another owner has one of the locks
--
-- A lock's value is "fence:owner". All reads come before the first write, so that
-- an error (WRONGTYPE, OOM) does not leave some of the locks taken.
local owner, ttl, locks, counters = ARGV[1], ARGV[2], tonumber(ARGV[3]), #KEYS - tonumber(ARGV[4])

local mine, kept = 0, nil
for i = 1, locks do
  local value = redis.call('GET', KEYS[i])
  if value then
    local fence, holder = string.match(value, '^(%d+):(.*)$')
    if holder ~= owner then
      for k = counters + 1, #KEYS do redis.call('SET', KEYS[k], 1, 'PX', ARGV[5]) end
      return 0
    end
    mine, kept = mine + 1, fence
  end
end

-- The owner holds all of them: an earlier request was granted and its reply was
-- lost. The grant keeps its fence; only the TTL restarts.
if mine == locks then
  for i = 1, locks do redis.call('PEXPIRE', KEYS[i], ttl) end
  return tonumber(kept)
end

-- Above every counter involved, and not below the clock: a server that lost its
-- counters continues above its earlier fences, unless its clock was set back as
-- well. Microseconds are exact in a Lua number until the year 2255.
local now = redis.call('TIME')
local fence = now[1] * 1000000 + now[2]
for i = locks + 1, counters do
  fence = math.max(fence, (tonumber(redis.call('GET', KEYS[i])) or 0) + 1)
end

-- %.0f, because Lua prints a number of this size as 1.79e+15.
local digits = string.format('%.0f', fence)
for i = locks + 1, counters do redis.call('SET', KEYS[i], digits) end
for i = 1, locks do
  redis.call('SET', KEYS[i], digits .. ':' .. owner, 'PX', ttl)
end
return fence
