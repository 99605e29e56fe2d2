#!lua
-- The numbers of lanes; a new lane gets one. KEYS: numbers by name, names by number.
local answer = {}
for i, name in ipairs(ARGV) do
  local number = redis.call('HGET', KEYS[1], name)
  if not number then
    number = redis.call('HINCRBY', KEYS[1], '', 1)
    redis.call('HSET', KEYS[1], name, number)
    redis.call('HSET', KEYS[2], number, name)
  end
  answer[i] = tonumber(number)
end
return answer
