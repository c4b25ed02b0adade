-- Deletes the locks that one owner holds, like release.lua, and wakes the first process in
-- the line of each. If that is this process, its next waiter gets the lock at once.
-- The text of acquire.lua stands before this one, as the function take.
--
-- KEYS     the locks, the fence counters of their buckets, and a line for each lock (await.lua)
-- ARGV[1]  the owner that waits in this process for this one lock, or '': none, or for several
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  how many of KEYS are locks
-- ARGV[4]  this process
-- ARGV[5]  for each lock 1 if one of its goroutines waits for it, else 0
-- ARGV[6]  how long the lines last, in milliseconds
-- ARGV[7]  1 if others of its goroutines wait behind the owner
-- ARGV[8]  the grant to delete: "fence:owner", exactly as acquire.lua wrote it
-- ARGV[9]  its owner
-- ARGV[10] the beginning of the channel of a process; the message is the name of the lock
-- ARGV[11] 1 if PUBLISH counts all subscribers: a node of a Cluster counts its own
-- ARGV[12] 1 if this process keeps the lock, although others are before it in the line
-- returns  how many of the locks were still under this grant, times two; plus 1 if this
--          process is the first in a line; or minus the fence of the owner that waited
--
-- A lock that is gone, because it expired or was deleted, wakes the first in its line as well: it is free.
-- A user who may not publish releases all the same (pcall): waiters poll.
local next, locks, process, waiting = ARGV[1], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local lasts, again, grant, owner = ARGV[6], ARGV[7] == '1', ARGV[8], ARGV[9]
local channel, counts, keeps = ARGV[10], ARGV[11] == '1', ARGV[12] == '1'
local lines = {}
for i = locks, 1, -1 do lines[i] = table.remove(KEYS) end

-- wake removes the first process from a line, and sends it a message. It returns 1 if that
-- is this process, which needs none. Processes that do not listen are passed over.
local function wake(line, lock, waits)
  while true do
    local first = redis.call('ZPOPMIN', line)[1]
    if not first then return waits and 1 or 0 end
    if first == process then
      if waits then return 1 end
    elseif redis.pcall('PUBLISH', channel .. first, lock) ~= 0 or not counts then
      return 0
    end
  end
end

local held, own = 0, 0
for i = 1, locks do
  local value = redis.call('GET', KEYS[i])
  local mine = value and string.match(value, '^%d+:(.*)$') == owner
  if value == grant then held = held + 1 end
  if mine then redis.call('DEL', KEYS[i]) end
  if mine or not value then
    own = math.max(own, keeps and 1 or wake(lines[i], KEYS[i], waiting:sub(i, i) == '1'))
  end
end
if own == 0 or held < locks or next == '' then return 2 * held + own end

if again then
  local now = redis.call('TIME')
  redis.call('ZADD', lines[1], string.format('%.0f', now[1] * 1000000 + now[2]), process)
  redis.call('PEXPIRE', lines[1], lasts)
elseif keeps then
  redis.call('ZREM', lines[1], process)
end
return -take()
