-- Takes all the keys for one owner, or none of them; then the owner may wait.
--
-- KEYS        after the queues: the fence counters of their buckets
-- ARGV[5]     TTL in milliseconds
-- ARGV[6]     how long the owner waits until its next request, in milliseconds; 0: it does not wait
-- returns     the grant, or 0
local ttl, ticket_ttl = tonumber(ARGV[5]), tonumber(ARGV[6])

local held, waits, grant = 0, 0, nil
for i = 1, keys do
  local ticket = tonumber(redis.call('ZSCORE', KEYS[2 * i - 1], owner) or 0)
  if ticket < 0 then held, grant = held + 1, -ticket end
  if ticket > 0 then waits = waits + 1 end
end

-- An earlier request was granted and its reply was lost. Only the TTL restarts.
if held == keys then
  stay(ttl)
  return grant
end

-- The owner was forgotten in some of the queues: it goes to the end of all of them. If it
-- kept its tickets in the others, two owners could wait for each other.
if held + waits > 0 and waits < keys then
  for i = 1, keys do
    remove(i, owner)
    wake(KEYS[2 * i - 1])
  end
  waits = 0
end

local granted = true
for i = 1, keys do
  local who = first(KEYS[2 * i - 1])
  if who and who ~= owner or not fits(KEYS[2 * i - 1], owner) then granted = false end
end

if granted then
  -- As in acquire.lua: above every counter involved, and not below the clock.
  local number = time[1] * 1000000 + time[2]
  for i = 2 * keys + 1, #KEYS do
    number = math.max(number, (tonumber(redis.call('GET', KEYS[i])) or 0) + 1)
  end
  local digits = string.format('%.0f', number)
  for i = 2 * keys + 1, #KEYS do redis.call('SET', KEYS[i], digits) end
  for i = 1, keys do redis.call('ZADD', KEYS[2 * i - 1], '-' .. digits, owner) end
  stay(ttl)
  for i = 1, keys do wake(KEYS[2 * i - 1]) end -- the next may hold it as well
  return number
end

if ticket_ttl > 0 then
  for i = 1, keys do
    local last = redis.call('ZRANGE', KEYS[2 * i - 1], -1, -1, 'WITHSCORES')[2]
    if waits == 0 then redis.call('ZADD', KEYS[2 * i - 1], math.max(tonumber(last) or 0, 0) + 1, owner) end
  end
  stay(ticket_ttl)
end
return 0
