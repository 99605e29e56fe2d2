#!lua flags=allow-oom
-- Writes a document, or deletes it. KEYS: documents, by version, by name, deletions, state.
local name, text, expected, till, now, kept, most = unpack(cmsgpack.unpack(ARGV[1]))
local function read()
  local value = redis.call('HGET', KEYS[1], name)
  if not value then return 0, false, false end
  local version, ends, there = struct.unpack('>llB', value)
  if there == 0 or (ends > 0 and ends <= now) then return 0, version, value end
  return version, version, value
end
local present, stored, value = read()
if expected and expected ~= present then return {'conflict', present > 0 and value or ''} end
local newest = tonumber(redis.call('HGET', KEYS[5], 'newest') or '0')
if not text and present == 0 then return {'same', tostring(newest)} end
newest = newest + 1
if stored then
  redis.call('ZREM', KEYS[2], name)
  redis.call('ZREM', KEYS[4], name)
end
redis.call('ZADD', KEYS[2], newest, name)
if text then
  redis.call('HSET', KEYS[1], name, struct.pack('>llB', newest, till or 0, 1) .. text)
  redis.call('ZADD', KEYS[3], 0, name)
else
  redis.call('HSET', KEYS[1], name, struct.pack('>llB', newest, now + kept, 0))
  redis.call('ZREM', KEYS[3], name)
  redis.call('ZADD', KEYS[4], newest, name)
end
redis.call('HSET', KEYS[5], 'newest', newest)
local surplus = redis.call('ZCARD', KEYS[4]) - most
if surplus > 0 then
  local old = redis.call('ZRANGE', KEYS[4], 0, surplus - 1, 'WITHSCORES')
  for i = 1, #old, 2 do
    redis.call('HDEL', KEYS[1], old[i])
    redis.call('ZREM', KEYS[2], old[i])
    redis.call('ZREM', KEYS[4], old[i])
    redis.call('HSET', KEYS[5], 'forgotten', old[i + 1])
  end
end
return {'written', tostring(newest)}
