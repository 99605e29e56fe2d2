#!lua flags=allow-oom
-- Appends entries behind the last one. KEYS: entries, their numbers, and for each new entry the numbers of its tenant.
-- ARGV: the number of the first one, then the entries. A repeat whose answer was lost is found as it was written.
local last = redis.call('ZREVRANGE', KEYS[2], 0, 0)[1] or '0'
local first = tonumber(ARGV[1])
if first ~= tonumber(last) + 1 then
  return redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] and 1 or 0
end
for i = 2, #ARGV do
  local number = first + i - 2
  local name = string.format('%.0f', number)
  redis.call('HSET', KEYS[1], name, ARGV[i])
  redis.call('ZADD', KEYS[2], number, name)
  redis.call('ZADD', KEYS[i + 1], number, name)
end
return 1
