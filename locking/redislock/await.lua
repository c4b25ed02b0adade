-- Takes all the locks, as acquire.lua does, or puts this process into the lines of those
-- that wait for them. The text of acquire.lua stands before this one, as the function take.
--
-- KEYS     those of acquire.lua, then a line for each lock: process → place, the first the smallest
-- ARGV[1]  to ARGV[3]: those of acquire.lua
-- ARGV[4]  this process
-- ARGV[5]  the place that it had in the lines, or 0: it goes to their end
-- ARGV[6]  how long the lines last, in milliseconds
-- ARGV[7]  for each lock 1 if the process goes to the end of its line after a grant, for its next waiter, else 0
-- ARGV[8]  the beginning of the channel of a process; the message is the name of the lock
-- returns  the fence, or minus the place when another owner has one of the locks
--
-- A process that was woken, and came too late, has the place that it had before, unless a grant had put it
-- into the line: then it goes to the end. If it came too late for some of several locks, the next process in
-- the line of a lock that is free is woken.
local process, place, lasts, again, channel = ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8]
local lines = {}
for i = tonumber(ARGV[3]), 1, -1 do lines[i] = table.remove(KEYS) end

local fence = take()
local granted = fence > 0
if granted or place == 0 then
  local now = redis.call('TIME')
  place = now[1] * 1000000 + now[2]
end
if not granted then
  for i, line in ipairs(lines) do
    place = math.min(place, tonumber(redis.call('ZSCORE', line, process) or place))
    if redis.call('EXISTS', KEYS[i]) == 0 then
      redis.call('ZREM', line, process)
      local first = redis.call('ZPOPMIN', line)[1]
      if first then redis.pcall('PUBLISH', channel .. first, KEYS[i]) end
    end
  end
end
for i, line in ipairs(lines) do
  if granted and again:sub(i, i) == '0' then
    redis.call('ZREM', line, process)
  else
    redis.call('ZADD', line, string.format('%.0f', place), process)
    redis.call('PEXPIRE', line, lasts)
  end
end
return granted and fence or -place
