-- Marks locks that are held, so that wake.lua sends a message when they are released.
--
-- KEYS     the locks, then a mark for each
-- ARGV[1]  how long a mark lasts, in milliseconds
-- returns  1 when none of the locks is held, else 0
--
-- A mark outlives the release, and is written again only when half of its time is over:
-- under contention that is one write for many hand-overs.
local locks, free = #KEYS / 2, 1
for i = 1, locks do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    free = 0
    if redis.call('PTTL', KEYS[locks + i]) < ARGV[1] / 2 then
      redis.call('SET', KEYS[locks + i], '', 'PX', ARGV[1])
    end
  end
end
return free
