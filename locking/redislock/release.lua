-- Deletes the locks that one owner holds, and no others.
--
-- KEYS     the locks
-- ARGV[1]  the grant: "fence:owner", exactly as acquire.lua wrote it
-- ARGV[2]  owner
-- returns  how many of the locks were still under this grant
--
-- A lock of this owner under another fence is deleted too, but not counted: a
-- delayed duplicate of the acquire request left it behind.
local grant, owner = ARGV[1], ARGV[2]
local held = 0
for i = 1, #KEYS do
  local value = redis.call('GET', KEYS[i])
  if value == grant then held = held + 1 end
  if value and string.match(value, '^%d+:(.*)$') == owner then redis.call('DEL', KEYS[i]) end
end
return held
