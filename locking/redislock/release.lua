-- Deletes the locks that one owner holds, and no others. If a process waits for one of them, it sends a message.
--
-- KEYS     the locks, then a mark for each, or none
-- ARGV[1]  the grant: "fence:owner", exactly as acquire.lua wrote it
-- ARGV[2]  owner
-- ARGV[3]  the channel of the messages, which are names of locks
-- ARGV[4]  how many of KEYS are locks
-- returns  how many of the locks were still under this grant
--
-- A lock of this owner under another fence is deleted too, but not counted: a
-- delayed duplicate of the acquire request left it behind. A lock that is gone, because it expired or was
-- deleted, is free: its waiters are told as well. A user who may not publish releases all the same (pcall): waiters poll.
local grant, owner, locks = ARGV[1], ARGV[2], tonumber(ARGV[4])
local held = 0
for i = 1, locks do
  local value = redis.call('GET', KEYS[i])
  local mine = value and string.match(value, '^%d+:(.*)$') == owner
  if value == grant then held = held + 1 end
  if mine then redis.call('DEL', KEYS[i]) end
  local mark = KEYS[locks + i]
  if mark and (mine or not value) and redis.call('DEL', mark) == 1 then redis.pcall('PUBLISH', ARGV[3], KEYS[i]) end
end
return held
