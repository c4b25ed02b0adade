-- Takes all the locks, as acquire.lua does, or puts this process into the lines of those
-- that wait for them. The text of acquire.lua stands before this one, as the function take.
--
-- KEYS     those of acquire.lua, then a line for each lock: process → place, the first the smallest
-- ARGV[1]  to ARGV[3]: those of acquire.lua
-- ARGV[4]  this process
-- ARGV[5]  the place that it had in the lines, or 0: it goes to their end
-- ARGV[6]  how long the lines last, in milliseconds
-- ARGV[7]  1 if the process goes to the end of the lines after a grant, for its next waiter
-- returns  the fence, or minus the place when another owner has one of the locks
--
-- A process that was woken, and came too late, has the place that it had before.
local process, place, lasts, again = ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7] == '1'
local lines = {}
for i = tonumber(ARGV[3]), 1, -1 do lines[i] = table.remove(KEYS) end

local fence = take()
local granted = fence > 0
if granted and not again then
  for _, line in ipairs(lines) do redis.call('ZREM', line, process) end
  return fence
end
if granted or place == 0 then
  local now = redis.call('TIME')
  place = now[1] * 1000000 + now[2]
end
if not granted then
  for _, line in ipairs(lines) do
    place = math.min(place, tonumber(redis.call('ZSCORE', line, process) or place))
  end
end
for _, line in ipairs(lines) do
  redis.call('ZADD', line, string.format('%.0f', place), process)
  redis.call('PEXPIRE', line, lasts)
end
return granted and fence or -place
