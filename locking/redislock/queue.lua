-- The queue of a key, in two sorted sets. take.lua, keep.lua and leave.lua begin with this text.
--
-- KEYS[2i-1]  owner → its ticket: positive while it waits, in order of arrival; negative
--             while it holds the key: its grant
-- KEYS[2i]    owner → the server's time at which it is forgotten, in milliseconds: a holder
--             that has not renewed, a waiter that has not sent its next request
-- ARGV[1]     owner: random, unique to this acquisition, after its mode: x exclusive, s shared
-- ARGV[2]     how many keys
-- ARGV[3]     how many shared owners may hold a key at once
-- ARGV[4]     the channel on which waiters are woken; the message is the owner
local owner, keys, limit, channel = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- first returns the owner that has waited longest.
local function first(queue)
  return redis.call('ZRANGEBYSCORE', queue, '(0', '+inf', 'LIMIT', 0, 1)[1]
end

-- fits reports whether who may hold the key beside its present holders.
local function fits(queue, who)
  local holders = redis.call('ZCOUNT', queue, '-inf', '(0')
  if holders == 0 then return true end
  local holder = redis.call('ZRANGE', queue, 0, 0)[1]
  return who:sub(1, 1) == 's' and holder:sub(1, 1) == 's' and holders < limit
end

-- wake sends the first waiter a message if it may hold the key. (pcall: a user who may not
-- publish releases all the same, and waiters poll.)
local function wake(queue)
  local who = first(queue)
  if who and who ~= owner and fits(queue, who) then redis.pcall('PUBLISH', channel, who) end
end

-- remove takes who out of the queue of the key i.
local function remove(i, who)
  redis.call('ZREM', KEYS[2 * i - 1], who)
  redis.call('ZREM', KEYS[2 * i], who)
end

-- stay sets when the owner is forgotten, and lets the sets end with their last owner.
local function stay(milliseconds)
  for i = 1, keys do
    redis.call('ZADD', KEYS[2 * i], now + milliseconds, owner)
    local last = redis.call('ZRANGE', KEYS[2 * i], -1, -1, 'WITHSCORES')[2]
    redis.call('PEXPIREAT', KEYS[2 * i - 1], last)
    redis.call('PEXPIREAT', KEYS[2 * i], last)
  end
end

for i = 1, keys do
  local late = redis.call('ZRANGEBYSCORE', KEYS[2 * i], '-inf', now)
  for _, who in ipairs(late) do remove(i, who) end
  if #late > 0 then wake(KEYS[2 * i - 1]) end
end
