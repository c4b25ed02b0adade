-- Takes an owner out of all the queues, holder or waiter, and serves the next.
--
-- ARGV[5]  the grant, or 0: any
-- returns  how many of the keys were still under this grant
local held = 0
for i = 1, keys do
  local ticket = redis.call('ZSCORE', queue[i], owner)
  if ticket then
    if tonumber(ticket) == -tonumber(ARGV[5]) then held = held + 1 end
    remove(i, owner)
    serve(i)
  end
end
return held
