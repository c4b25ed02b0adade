-- Takes all the keys for one owner, or none of them; then the owner may wait. The text of queue.lua stands before this one.
--
-- ARGV[5]     TTL in milliseconds
-- ARGV[6]     how long a ticket lasts, in milliseconds; 0: the owner does not wait
-- returns     the grant; or minus the ticket of the owner, which waits; or 0
local ttl, ticket_ttl = tonumber(ARGV[5]), tonumber(ARGV[6])

local held, waits, number = 0, 0, lowest_ticket -- number: its grant, negative, or its ticket
for i = 1, keys do
  local ticket = tonumber(redis.call('ZSCORE', queue[i], owner) or 0)
  if ticket ~= 0 then number = ticket end
  if ticket < 0 then held = held + 1 end
  if ticket > 0 then waits = waits + 1 end
end

-- The owner has the keys already, by an earlier request whose reply was lost. Only the TTL restarts.
if held == keys then
  for i = 1, keys do
    redis.call('ZADD', queue[i], now + ttl, '~' .. owner)
    outlive(i, ttl)
  end
  return -number
end

-- The owner was forgotten in some of the queues: it goes to the end of all of them. If it
-- kept its tickets in the others, two owners could wait for each other.
if held + waits > 0 and waits < keys then
  for i = 1, keys do
    remove(i, owner)
    serve(i)
  end
  waits, number = 0, lowest_ticket
end

local granted = true
for i = 1, keys do
  local who = first(i)
  if who and who ~= owner or not fits(i, owner) then granted = false end
end

if granted then
  local digits = grant(owner, 1, keys, ttl)
  for i = 1, keys do
    outlive(i, ttl)
    if owner:sub(1, 1) == 's' then serve(i) end -- the next may hold it as well
  end
  return tonumber(digits)
end

if ticket_ttl == 0 then return 0 end
if waits == 0 then
  for i = 1, keys do
    local last = redis.call('ZRANGE', queue[i], -1, -1, 'WITHSCORES')[2]
    number = math.max(number, microseconds, (tonumber(last) or 0) + 1)
  end
end
for i = 1, keys do
  -- Most polls write nothing, so that they cost no sync of the disk.
  local deadline = waits > 0 and tonumber(redis.call('ZSCORE', queue[i], '~' .. owner)) or 0
  if deadline < now + ticket_ttl * 2 / 3 then
    redis.call('ZADD', queue[i], string.format('%.0f', number), owner, now + ticket_ttl, '~' .. owner)
    outlive(i, ticket_ttl)
  end
end
return -number
