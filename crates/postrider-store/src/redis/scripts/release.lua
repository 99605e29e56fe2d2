#!lua flags=allow-oom
-- Frees idempotency keys whose message was never written. KEYS: keys of periods.
for _, it in ipairs(cmsgpack.unpack(ARGV[1])) do
  if redis.call('HGET', KEYS[it[2]], it[1]) == it[3] then redis.call('HDEL', KEYS[it[2]], it[1]) end
end
return 1
