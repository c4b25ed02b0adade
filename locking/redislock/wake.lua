-- Deletes the locks that one owner holds, like release.lua, and wakes their waiters.
--
-- KEYS     the locks, then a mark for each: it exists while a waiter waits (await.lua)
-- ARGV[1]  the grant: "fence:owner", exactly as acquire.lua wrote it
-- ARGV[2]  owner
-- ARGV[3]  the channel; the message is the name of the lock
-- returns  how many of the locks were still under this grant
--
-- A user who may not publish releases all the same (pcall): waiters poll.
local grant, owner = ARGV[1], ARGV[2]
local locks, held = #KEYS / 2, 0
for i = 1, locks do
  local value = redis.call('GET', KEYS[i])
  if value == grant then held = held + 1 end
  if value and string.match(value, '^%d+:(.*)$') == owner then
    redis.call('DEL', KEYS[i])
    if redis.call('EXISTS', KEYS[locks + i]) == 1 then redis.pcall('PUBLISH', ARGV[3], KEYS[i]) end
  end
end
return held
