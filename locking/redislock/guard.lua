-- Refuses the script that follows if a newer fence has guarded the resource.
--
-- KEYS[last]  the guard: the greatest fence that has passed, without a TTL
-- ARGV[last]  fence, in decimal
-- returns     nothing, or the error STALE from the whole script
--
-- It removes both arguments: the script that follows sees only its own. Fences are compared as
-- text, the longer the greater, because a Lua number is exact only up to 2^53.
do
  local guard, fence = table.remove(KEYS), table.remove(ARGV)
  local seen = redis.call('GET', guard) or ''
  if #seen > #fence or #seen == #fence and seen > fence then
    return redis.error_reply('STALE fence ' .. fence .. ', seen ' .. seen)
  end
  redis.call('SET', guard, fence)
end
