#!lua flags=allow-oom
-- A worker lives: its name, its number (or nothing for a new one) and the time. KEYS: workers, turn, counters.
local name, number, now = ARGV[1], ARGV[2], ARGV[3]
if number == '' then
  number = redis.call('HINCRBY', KEYS[3], 'worker', 1)
else
  local known = redis.call('HGET', KEYS[1], name)
  if not known or string.match(known, '^%-?%d+') ~= number then return false end
end
redis.call('HSET', KEYS[1], name, number .. ' ' .. now)
return {tostring(number), redis.call('HGETALL', KEYS[1]), redis.call('HMGET', KEYS[2], 'id', 'until')}
