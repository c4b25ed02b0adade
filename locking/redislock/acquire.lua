-- Takes all the locks for one owner, or none of them.
--
-- KEYS     the locks, then the fence counters of their buckets
-- ARGV[1]  owner: random, of this acquisition alone
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  how many of KEYS are locks
-- returns  the fence, or 0 when another owner has one of the locks
--
-- A lock's value is "fence:owner". Everything is read before anything is
-- written, so that an error (WRONGTYPE, OOM) leaves no lock half taken.
local owner, ttl, locks = ARGV[1], ARGV[2], tonumber(ARGV[3])

local mine, kept = 0, nil
for i = 1, locks do
  local value = redis.call('GET', KEYS[i])
  if value then
    local fence, holder = string.match(value, '^(%d+):(.*)$')
    if holder ~= owner then return 0 end
    mine, kept = mine + 1, fence
  end
end

-- All are ours already: the request came before, its reply was lost. The grant
-- stands with the fence it had; only the TTL starts anew.
if mine == locks then
  for i = 1, locks do redis.call('PEXPIRE', KEYS[i], ttl) end
  return tonumber(kept)
end

-- Above every counter involved, and not below the clock: a server that lost
-- its counters goes on above the fences it gave before, unless its clock was
-- set back as well. Microseconds stay exact in a Lua number until the year 2255.
local now = redis.call('TIME')
local fence = now[1] * 1000000 + now[2]
for i = locks + 1, #KEYS do
  fence = math.max(fence, (tonumber(redis.call('GET', KEYS[i])) or 0) + 1)
end

-- %.0f, because Lua writes a number of this size as 1.79e+15.
local digits = string.format('%.0f', fence)
for i = locks + 1, #KEYS do redis.call('SET', KEYS[i], digits) end
for i = 1, locks do
  redis.call('SET', KEYS[i], digits .. ':' .. owner, 'PX', ttl)
end
return fence
