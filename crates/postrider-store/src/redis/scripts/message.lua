#!lua
-- A new message that several deliveries share. KEYS: message, needs, counts, bytes, messages, tags, unsealed.
local id, record, content, count, needs, tenant, tags, at, pending = unpack(cmsgpack.unpack(ARGV[1]))
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'record', record, 'bytes', content and #content or 0, 'tenant', tenant, 'pending', pending,
  'needed', pending, 'left', count, 'tags', cmsgpack.pack(tags))
if content then redis.call('HSET', KEYS[1], 'content', content) end
redis.call('SET', KEYS[2], needs)
redis.call('HINCRBY', KEYS[3], 'm:' .. tenant, 1)
if content and pending > 0 then redis.call('HINCRBY', KEYS[4], tenant, #content) end
redis.call('ZADD', KEYS[5], 0, id)
for _, tag in ipairs(tags) do redis.call('ZADD', KEYS[6], 0, tag) end
if at then redis.call('ZADD', KEYS[7], at, id) end
return 1
