-- Deletes the locks of one owner, and nobody else's.
--
-- KEYS     the locks
-- ARGV[1]  owner
-- ARGV[2]  fence of the grant
-- returns  how many of the locks were still under this grant
--
-- A lock of ours under another fence is deleted too, and not counted: it is
-- what a delayed duplicate of our acquire request left behind.
local held = 0
for i = 1, #KEYS do
  local value = redis.call('GET', KEYS[i])
  if value then
    local fence, holder = string.match(value, '^(%d+):(.*)$')
    if holder == ARGV[1] then
      redis.call('DEL', KEYS[i])
      if fence == ARGV[2] then held = held + 1 end
    end
  end
end
return held
