#!lua
-- Writes entries of a tenant. KEYS: its entries, their names in order, the tenants that have entries.
-- ARGV: the tenant, the time, and for each entry its name, the expected version or nothing, 1 or 0 for a deletion, text.
local answer = {}
for i = 3, #ARGV, 4 do
  local name, expected, stays, text = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local value = redis.call('HGET', KEYS[1], name)
  local version = value and tonumber(string.match(value, '^%d+')) or 0
  if expected ~= '' and tonumber(expected) ~= version then
    answer[#answer + 1] = 'c' .. string.format('%.0f', version)
  elseif stays == '0' then
    redis.call('HDEL', KEYS[1], name)
    redis.call('ZREM', KEYS[2], name)
    answer[#answer + 1] = 'w0'
  else
    local new = string.format('%.0f', math.max(version + 1, tonumber(ARGV[2])))
    redis.call('HSET', KEYS[1], name, new .. ':' .. text)
    redis.call('ZADD', KEYS[2], 0, name)
    answer[#answer + 1] = 'w' .. new
  end
end
if redis.call('HLEN', KEYS[1]) > 0 then
  redis.call('SADD', KEYS[3], ARGV[1])
else
  redis.call('SREM', KEYS[3], ARGV[1])
end
return answer
