#!lua
-- Idempotency keys of one shard: those that are known are answered, the others are written if they have a value.
-- A stored key: 16 bytes of the fingerprint, 16 of the message, 4 how many deliveries, 8 its end, 1 whether the message
-- is written. KEYS: periods; then the keys of each period that is named.
local periods, over_by, items = unpack(cmsgpack.unpack(ARGV[1]))
local named = {}
for i, period in ipairs(periods) do named[period] = i end
local live = {}
for _, period in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if not named[period] then return redis.call('ZRANGE', KEYS[1], 0, -1) end
  live[#live + 1] = KEYS[1 + named[period]]
end
local answer = {}
for i, it in ipairs(items) do
  local found = ''
  for _, key in ipairs(live) do
    local value = redis.call('HGET', key, it[1])
    if value then
      if struct.unpack('>l', value, 37) > over_by then found = value else redis.call('HDEL', key, it[1]) end
    end
  end
  if found == '' and it[2] then
    redis.call('HSET', KEYS[1 + it[3]], it[1], it[2])
    redis.call('ZADD', KEYS[1], periods[it[3]], periods[it[3]])
  end
  answer[i] = {found}
end
return answer
