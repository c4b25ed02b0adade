-- The queue of a key, a sorted set. take.lua, keep.lua and leave.lua begin with this text.
--
-- KEYS[2i-1]  OWNER → minus its grant while it holds the key, or its ticket while it waits:
--             a number above all before it, and above every deadline
--             ~OWNER → its deadline, the server's time at which it is forgotten, in milliseconds: a
--             holder that has not renewed, a waiter that has not sent its next request
-- KEYS[2i]    the fence counter of the key's bucket
-- ARGV[1]     owner, unique to this acquisition: MODE:PROCESS:RANDOM. MODE is x (exclusive)
--             or s (shared)
-- ARGV[2]     how many keys
-- ARGV[3]     how many shared owners may hold a key at once
-- ARGV[4]     the beginning of the channel of a process
local owner, keys, limit, channel = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local time, lowest_ticket = redis.call('TIME'), 1e14 -- no deadline in milliseconds before the year 5138 is greater
local microseconds, now = time[1] * 1000000 + time[2], time[1] * 1000 + math.floor(time[2] / 1000)
local queue, counter = {}, {}
for i = 1, keys do queue[i], counter[i] = KEYS[2 * i - 1], KEYS[2 * i] end

-- first returns the owner that has waited longest, and its ticket.
local function first(i)
  local found = redis.call('ZRANGEBYSCORE', queue[i], lowest_ticket, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return found[1], found[2]
end

-- lowest returns the member with the lowest number: a holder, if there is one.
local function lowest(i)
  local found = redis.call('ZRANGE', queue[i], 0, 0, 'WITHSCORES')
  return found[1], tonumber(found[2])
end

-- fits reports whether who may hold the key i beside its present holders.
local function fits(i, who)
  local holder, number = lowest(i)
  if not holder or number > 0 then return true end
  return who:sub(1, 1) == 's' and holder:sub(1, 1) == 's' and redis.call('ZCOUNT', queue[i], '-inf', '(0') < limit
end

-- grant makes who a holder of the keys from i to j, and returns the grant: as in acquire.lua,
-- above every counter involved, and not below the clock.
local function grant(who, i, j, ttl)
  local number = microseconds
  for k = i, j do number = math.max(number, (tonumber(redis.call('GET', counter[k])) or 0) + 1) end
  local digits = string.format('%.0f', number)
  for k = i, j do
    redis.call('SET', counter[k], digits)
    redis.call('ZADD', queue[k], '-' .. digits, who, now + ttl, '~' .. who)
  end
  return digits
end

-- serve tells the first waiter for the key i, by a message to its process, that the key has room for it. The waiter sends
-- a request then. Until it has, or its deadline is over, no other waiter is granted the key.
-- (pcall: a user who may not publish releases all the same, and waiters poll.)
local function serve(i)
  local who = first(i)
  if who and fits(i, who) then redis.pcall('PUBLISH', channel .. (who:match('^.:(%w+):') or ''), who) end
end

-- remove takes who out of the queue of the key i.
local function remove(i, who) redis.call('ZREM', queue[i], who, '~' .. who) end

-- outlive lets the queue of the key i exist for some milliseconds more: without an end, one whose
-- owners have died would stay. It gets twice the time, so that the next call need not set it again.
local function outlive(i, milliseconds)
  if redis.call('PTTL', queue[i]) < milliseconds then redis.call('PEXPIRE', queue[i], 2 * milliseconds) end
end

for i = 1, keys do
  local late = redis.call('ZRANGEBYSCORE', queue[i], 0, now)
  for _, who in ipairs(late) do remove(i, who:sub(2)) end
  if #late > 0 then serve(i) end
end
