#!lua flags=allow-oom
-- Deletes documents whose time is over, and forgets old deletions. KEYS: documents, by version, by name, deletions, state.
local over_by, kept, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
for _, name in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  local version, ends = struct.unpack('>ll', redis.call('HGET', KEYS[1], name))
  if ends > 0 and ends <= over_by then
    redis.call('HSET', KEYS[1], name, struct.pack('>llB', version, ends + kept, 0))
    redis.call('ZREM', KEYS[3], name)
    redis.call('ZADD', KEYS[4], version, name)
  end
end
local surplus = redis.call('ZCARD', KEYS[4]) - most
for i, name in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  local version, ends = struct.unpack('>ll', redis.call('HGET', KEYS[1], name))
  if ends <= over_by or i <= surplus then
    redis.call('HDEL', KEYS[1], name)
    redis.call('ZREM', KEYS[2], name)
    redis.call('ZREM', KEYS[4], name)
    if version > tonumber(redis.call('HGET', KEYS[5], 'forgotten') or '0') then
      redis.call('HSET', KEYS[5], 'forgotten', version)
    end
  end
end
return 1
