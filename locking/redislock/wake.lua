-- Deletes the locks that one owner holds, like release.lua, and wakes the first process in
-- the line of each.
--
-- KEYS     the locks, then a line for each (await.lua)
-- ARGV[1]  the grant: "fence:owner", exactly as acquire.lua wrote it
-- ARGV[2]  owner
-- ARGV[3]  this process
-- ARGV[4]  1 if one of its own goroutines waits for one of the locks
-- ARGV[5]  the beginning of the channel of a process; the message is the name of the lock
-- ARGV[6]  1 if PUBLISH counts all subscribers: a node of a Cluster counts its own
-- returns  how many of the locks were still under this grant, times two; plus 1 if this
--          process is the first in a line
--
-- A user who may not publish releases all the same (pcall): waiters poll.
local grant, owner, process, waits, channel, counts = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5], ARGV[6] == '1'

-- wake removes the first process from a line, and sends it a message. It returns 1 if that
-- is this process, which needs none. Processes that do not listen are passed over.
local function wake(line, lock)
  while true do
    local first = redis.call('ZPOPMIN', line)[1]
    if not first then return 0 end
    if first == process then
      if waits then return 1 end
    elseif redis.pcall('PUBLISH', channel .. first, lock) ~= 0 or not counts then
      return 0
    end
  end
end

local locks, held, own = #KEYS / 2, 0, 0
for i = 1, locks do
  local value = redis.call('GET', KEYS[i])
  if value == grant then held = held + 1 end
  if value and string.match(value, '^%d+:(.*)$') == owner then
    redis.call('DEL', KEYS[i])
    own = math.max(own, wake(KEYS[locks + i], KEYS[i]))
  end
end
return 2 * held + own
