#!lua
-- Writes parts of rollups of one span. KEYS: the times, then for each part the tenants of its time and its hash.
-- ARGV: for each part its time, tenant, writer and text.
for i = 0, #ARGV / 4 - 1 do
  local at, tenant, writer, text = ARGV[4 * i + 1], ARGV[4 * i + 2], ARGV[4 * i + 3], ARGV[4 * i + 4]
  redis.call('ZADD', KEYS[1], at, at)
  redis.call('SADD', KEYS[2 * i + 2], tenant)
  redis.call('HSET', KEYS[2 * i + 3], writer, text)
end
return 1
