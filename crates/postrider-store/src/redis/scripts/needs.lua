#!lua flags=allow-oom
-- What deliveries of a shared message need of it: 1 it is pending, 2 the content, 4 the message. Each with a number that
-- grows, so that a late repeat changes nothing. KEYS: message, needs, counts, bytes, messages, tags, unsealed.
local id, items = unpack(cmsgpack.unpack(ARGV[1]))
local known = redis.call('HMGET', KEYS[1], 'pending', 'needed', 'left', 'bytes', 'tenant', 'tags')
if not known[1] then return 0 end
local pending, needed, left = tonumber(known[1]), tonumber(known[2]), tonumber(known[3])
local was, wanted = pending, needed
local function bit(flags, n) return math.floor(flags / n) % 2 end
for _, it in ipairs(items) do
  local at, value = it[1] * 5, it[2]
  local old = redis.call('GETRANGE', KEYS[2], at, at + 4)
  if #old == 5 and struct.unpack('>I4', value, 2) > struct.unpack('>I4', old, 2) then
    local a, b = string.byte(old), string.byte(value)
    pending = pending + bit(b, 1) - bit(a, 1)
    needed = needed + bit(b, 2) - bit(a, 2)
    left = left + bit(b, 4) - bit(a, 4)
    redis.call('SETRANGE', KEYS[2], at, value)
  end
end
local change, tenant = 0, known[5]
if was > 0 and pending <= 0 then change = -tonumber(known[4]) end
if was <= 0 and pending > 0 then change = tonumber(known[4]) end
if change ~= 0 and redis.call('HINCRBY', KEYS[4], tenant, change) == 0 then redis.call('HDEL', KEYS[4], tenant) end
if left <= 0 then
  redis.call('DEL', KEYS[1], KEYS[2])
  redis.call('ZREM', KEYS[5], id)
  redis.call('ZREM', KEYS[7], id)
  for _, tag in ipairs(cmsgpack.unpack(known[6])) do redis.call('ZREM', KEYS[6], tag) end
  if redis.call('HINCRBY', KEYS[3], 'm:' .. tenant, -1) == 0 then redis.call('HDEL', KEYS[3], 'm:' .. tenant) end
  return change
end
redis.call('HSET', KEYS[1], 'pending', pending, 'needed', needed, 'left', left)
if needed <= 0 and wanted > 0 then redis.call('HDEL', KEYS[1], 'content') end
return change
